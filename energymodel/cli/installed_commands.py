"""Commands about what is installed here: presets, schemas, and versions, packages, devices and the cache."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
import typer.core

import energymodel as em
from energymodel.cli import completion, shell
from energymodel.cli.options import argument, flag, option
from energymodel.cli.shell import Delivery
from energymodel.errors import InputError, suggest
from energymodel.readers.expressions import data_file
from energymodel.report import answers
from energymodel.runtime.cache_folder import clear, contents, folder_in_use


class _ListByDefault(typer.core.TyperGroup):
    """`presets` alone is `presets list`, and `presets hardware` is `presets list hardware`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the command that was left out."""
        from energymodel.scenarios.files import CATEGORIES

        left_out = not args or args[0] in CATEGORIES or (args[0].startswith("-") and "--help" not in args)
        return super().parse_args(ctx, ["list", *args] if left_out else args)


app = typer.Typer(
    cls=_ListByDefault,
    rich_markup_mode=None,
    help="List presets, or print one with units and sources.",
    epilog="Example: energymodel presets hardware",
)
BASE = "llama-3.1-405b-h100"
WHERE = data_file(__file__, "preset_places.toml")
ALONE = WHERE["alone"]
"""Where a scenario holds a component of each category, and plans that every preset of some can run."""


@app.command("list", epilog="Example: energymodel presets list hardware")
@shell.guarded
def listing(
    *,
    category: str | None = argument("Only one category, with main numbers and kinds.", complete=completion.categories),
    show: Delivery,
) -> int:
    """List all presets with their titles; also what `presets` alone does. `presets hardware` lists accelerators."""
    from energymodel.scenarios.files import CATEGORIES

    show.check()
    if category is not None:
        _check("category", category, CATEGORIES)
    return show.deliver(answers.presets_answer() if category is None else answers.category_answer(category))


@app.command("show", epilog="Example: energymodel presets show h100-sxm")
@shell.guarded
def show(
    *,
    name: str = argument(
        "Preset, category/preset where a name is ambiguous, or a scenario file.",
        "NAME",
        ...,
        complete=completion.presets,
    ),
) -> None:
    """Print a preset as TOML, with the unit, source and uncertainty of each number."""
    from energymodel.cli.source import read_scenario
    from energymodel.readers.text_file import is_file

    print(scenario_toml(read_scenario(name, [])) if is_file(name) else preset_toml(*find(name)), end="")


@app.command("new", epilog='Example: energymodel presets new mine.toml --peak "400 TFLOP/s" --memory "64 GB"')
@shell.guarded
def new(
    *,
    file: str = argument("File to write; it must not exist.", "FILE.toml", ..., complete=completion.files),
    peak: str | None = option("Dense rate of matrix products in bf16, such as 400 TFLOP/s.", "RATE"),
    memory: str | None = option("Memory that the device reports, such as 64 GB.", "SIZE"),
    bandwidth: str | None = option("Bandwidth of the memory, such as 2 TB/s.", "RATE"),
    power: str | None = option("Rated power, such as 500 W.", "POWER"),
    set_: list[str] | None = option(
        "Another of its numbers, such as peak_flops_fp8=800 TFLOP/s; repeatable.", "NAME=VALUE", None, "--set"
    ),
    node: str | None = option("Node of the accelerators.", "PRESET"),
    network: str | None = option("Network of the nodes.", "PRESET"),
    title: str | None = option("What answers call it; by default the name of the file.", "TEXT"),
) -> None:
    """Describe an accelerator that is no preset, in a file that --accelerator takes.

    What is not stated is a prior over all presets, with its interval; `benchmark` and `calibrate` measure it.
    """
    from energymodel.report.toml_text import dumps
    from energymodel.scenarios.stated_accelerator import stated_accelerator

    path = Path(file)
    if path.suffix != ".toml" or path.exists():
        raise InputError(f"{file}: {'exists' if path.exists() else 'no name of a .toml file'}. Give another name.")
    short = {"peak_flops": peak, "memory_capacity": memory, "memory_bandwidth": bandwidth, "rated_power": power}
    pairs = {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in set_ or ())}
    tables = stated_accelerator(title or path.stem, {**short, **pairs}, node, network)
    heading = f"# An accelerator: energymodel predict --model llama-3.1-8b --accelerator {file} --chips 8 --tokens 1T\n"
    shell.write(path, (heading + dumps(tables)).encode())
    print(f"{file}: --accelerator {file} takes it. Every prior in it says so; state more with --set, or edit it.")


def _check(what: str, name: str, names: Iterable[str], among: str = "") -> None:
    if name not in names:
        raise InputError(f'Unknown {what} "{name}"{among}. {suggest(name, names)}')


def find(name: str) -> tuple[str, str]:
    """Category and name of a preset; `InputError` for an unknown or an ambiguous name."""
    from energymodel.scenarios import files

    category, separator, rest = name.rpartition("/")
    if separator:
        _check("category", category, files.CATEGORIES)
        _check("preset", rest, files.names(category), f" among {category}")
        return category, rest
    holders = [category for category in files.CATEGORIES if name in files.names(category)]
    if len(holders) > 1:
        raise InputError(f'"{name}" is ambiguous. Give {" or ".join(f"{holder}/{name}" for holder in holders)}.')
    if not holders:
        _check("preset", name, files.all_names())
    return holders[0], name


def scenario_toml(scenario: "em.Scenario") -> str:
    """A scenario as a file, with every number of its system, defaults too."""
    from energymodel.report.toml_text import dumps
    from energymodel.scenarios.components import resolve
    from energymodel.system.training_system import TrainingSystem

    heading = f"# Scenario {scenario.name}, complete and in SI: edit and run `energymodel evaluate FILE`.\n"
    system = resolve(scenario.tables["system"], TrainingSystem, "system", defaults=True)
    return heading + dumps({**scenario.tables, "system": system})


def preset_toml(category: str, name: str) -> str:
    """A preset as a scenario file: a scenario in full, a component or a cluster as a change of the scenario `BASE`.

    What forecasts of a run that trains rest on is part of no scenario: its numbers alone.
    """
    from energymodel.report.toml_text import dumps
    from energymodel.scenarios.components import preset_in_si
    from energymodel.scenarios.files import merge, read_preset
    from energymodel.scenarios.layers import nested

    if category == "scenarios":
        return scenario_toml(em.load_scenario(name))
    preset = read_preset(category, name)
    heading = f"# {preset['title']} ({category}/{name})\n"
    if category in ALONE:
        heading += f"# `energymodel {ALONE[category]}` uses these numbers.\n"
        return heading + dumps(preset_in_si(category, name))
    if category == "clusters":
        change, what = {"system": preset["system"]}, "on this cluster. Edit it."
    else:
        path = WHERE["places"].get(category) or WHERE["laws"].get(str(preset["component"]), "learning.critical_batch")
        # The name makes it replace what the base has there, whatever law or device that is.
        change = nested(f"system.{path}", {"preset": name, **preset_in_si(category, name)})
        what = f"with this system.{path}. Edit it, or copy parts into another."
    if category == "cores":
        change = merge({"system": {"chip_design": "scaled"}}, change)
    if category in WHERE["plans"]:
        change = merge(change, {"plan": WHERE["plans"][category]})
    return f"{heading}# A scenario file: {BASE} {what}\n" + dumps({"base": BASE, **change})


@shell.guarded
def doctor(
    *,
    clear_cache: bool = flag("Remove the compiled programs; the next runs compile again."),
    yes: bool = flag("Do not ask before removing them.", "--yes", "-y"),
    show: Delivery,
) -> int:
    """Say what is installed here and what is missing.

    Versions, devices, optional packages, and the folder that keeps compiled programs.

    Example: energymodel doctor --clear-cache
    """
    show.check()
    if clear_cache:
        return show.deliver(answers.cleared_answer(*_clear(sure=yes)))
    if yes:
        raise InputError("--yes answers the question of --clear-cache. Add --clear-cache, or leave --yes out.")
    return show.deliver(answers.doctor_answer(_kernels()))


@shell.guarded
def schema(*, name: str = argument("A command, such as optimize, or error.", "COMMAND", ...)) -> None:
    """Print the JSON schema of what a command prints with --json.

    Keys, units and version of its tables; a failure prints error instead.

    Example: energymodel schema optimize
    """
    from energymodel.report.schema import schema_of

    print(json.dumps(schema_of(name), indent=1))


def _clear(*, sure: bool) -> tuple[str, int, int, int]:
    """Folder, programs removed, their size [B], and programs left in place."""
    folder = folder_in_use().path  # also one that is not used because others could write there
    if folder is None or folder.is_symlink():
        raise InputError(f"--clear-cache: {folder_in_use().refusal}")
    held = contents(folder)
    if not sure and held.lowered + held.compiled:
        if not sys.stdin.isatty():
            raise InputError(f"{folder}: --clear-cache asks first, and there is nobody to ask. Add --yes.")
        from energymodel.report.number import plain

        size = plain(held.size, "B")
        typer.confirm(f"Remove the compiled programs in {folder} ({size})?", abort=True, err=True)
    try:
        removed = clear(folder)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be removed: {error.strerror}.") from None
    return str(folder), removed.lowered + removed.compiled, removed.size, held.compiled - removed.compiled


def _kernels() -> str | None:
    """Why the accelerator kernels cannot be imported, or `None`."""
    try:
        import energymodel_kernels  # noqa: F401
    except Exception as error:  # whatever is wrong with them is what the person wants to know
        return f"{type(error).__name__}: {error}"
    return None
