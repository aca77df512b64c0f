"""`energymodel presets`: which numbers come with the model, and where are they from?"""

from typing import Annotated, Any

import typer
import typer.core

from energymodel.cli.shell import AsJson, guarded
from energymodel.errors import InputError


class _ListByDefault(typer.core.TyperGroup):
    """`presets` alone is `presets list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the command that was left out."""
        left_out = not args or args[0] == "--json"
        return super().parse_args(ctx, ["list", *args] if left_out else args)


app = typer.Typer(
    cls=_ListByDefault, rich_markup_mode=None, help="List presets, or print one with units, sources and uncertainty."
)
BASE = "llama-3.1-405b-h100"
# Where a scenario holds a component of each category.
PLACES = {
    "models": "workload", "hardware": "accelerator", "nodes": "node", "networks": "network", "software": "software",
    "facilities": "facility", "regions": "market", "prices": "market.price", "carbon": "market.carbon",
    "learning": "learning", "reliability": "reliability",
}  # fmt: skip
LAW_PLACES = {"ChinchillaLaw": "learning.loss_law"}


@app.command("list")
@guarded
def listing(as_json: AsJson = False) -> None:
    """List all presets with their titles; also what `presets` alone does."""
    from energymodel.presets.files import CATEGORIES, names, read_preset

    titles = {
        category: {name: str(read_preset(category, name).get("title", "")) for name in names(category)}
        for category in CATEGORIES
    }
    if as_json:
        import json

        print(json.dumps(titles, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for group in titles.values() for name in group)
    for category, group in titles.items():
        print(f"{category}: {CATEGORIES[category]}")
        for name, title in group.items():
            print(f"  {name:<{width}}  {title}".rstrip())
        print()
    print("`energymodel presets show NAME` prints one, ready to be copied and edited.")


@app.command("show")
@guarded
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Preset, or category/preset where a name is ambiguous.")],
) -> None:
    """Print a preset as TOML, with the unit, source and uncertainty of each number."""
    print(preset_toml(*find(name)), end="")


def find(name: str) -> tuple[str, str]:
    """Category and name of a preset.

    **Raises:** `InputError` for an unknown or an ambiguous name.
    """
    from energymodel.errors import suggest
    from energymodel.presets.files import CATEGORIES, all_names, names

    category, separator, rest = name.partition("/")
    if separator:
        if category not in CATEGORIES:
            raise InputError(f'Unknown category "{category}". {suggest(category, CATEGORIES)}')
        if rest not in names(category):
            raise InputError(f'Unknown preset "{rest}" among {category}. {suggest(rest, names(category))}')
        return category, rest
    holders = [category for category in CATEGORIES if name in names(category)]
    if not holders:
        raise InputError(f'Unknown preset "{name}". {suggest(name, all_names())}')
    if len(holders) > 1:
        choices = " or ".join(f"{holder}/{name}" for holder in holders)
        raise InputError(f'"{name}" is ambiguous. Give {choices}.')
    return holders[0], name


def preset_toml(category: str, name: str) -> str:
    """A preset as a scenario file: a scenario in full, a component or a cluster as a change of the scenario `BASE`."""
    from energymodel.presets.files import read_preset
    from energymodel.report.toml_text import dumps

    if category == "scenarios":
        from energymodel.presets.scenario import load_scenario

        scenario = load_scenario(name)
        return f"# Scenario {name}, complete and in SI: edit and run `energymodel evaluate FILE`.\n" + dumps(
            scenario.tables
        )
    preset = read_preset(category, name)
    title = preset.pop("title", name)
    if preset.get("component") == "NearLimitAccelerator":
        preset = {key: value for key, value in preset.items() if isinstance(value, dict)}
    if category == "clusters":
        heading = f"# {title} ({category}/{name})\n# A scenario file: {BASE} on this cluster. Edit it.\n"
        return heading + dumps({"base": BASE, **preset})
    place = PLACES.get(category) or LAW_PLACES.get(str(preset.get("component")), "learning.critical_batch")
    # The name makes it replace what the base has there, whatever law or device that is.
    tables: dict[str, Any] = {"preset": name, **preset}
    for part in reversed(f"system.{place}".split(".")):
        tables = {part: tables}
    heading = (
        f"# {title} ({category}/{name})\n"
        f"# A scenario file: {BASE} with this system.{place}. Edit it, or copy parts into another.\n"
    )
    return heading + dumps({"base": BASE, **tables})
