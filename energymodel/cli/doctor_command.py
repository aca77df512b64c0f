"""`energymodel doctor`: what is installed here, what is missing, and how much room does the cache take?"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from energymodel.cli.cache_folder import CacheContents, CacheFolder, clear, contents, default_folder, folder_in_use
from energymodel.cli.shell import NOT_TRUSTED, TRUSTED, AsJson, guarded
from energymodel.errors import InputError


@guarded
def command(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove the compiled programs; the next runs compile again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing them.")] = False,
    as_json: AsJson = False,
) -> int:
    """Say what is installed here and what is missing.

    Versions, devices, optional packages, and the folder that keeps compiled programs.

    Example: energymodel doctor --clear-cache
    """
    if clear_cache:
        return _clear(_folder(), sure=yes, as_json=as_json)
    if yes:
        raise InputError("--yes answers the question of --clear-cache. Add --clear-cache, or leave --yes out.")
    from energymodel.cli.installation import facts

    found = facts() | {"cache": _cache(folder_in_use()), "problems": []}
    found["problems"] = _problems(found)
    print(json.dumps(found, indent=2, ensure_ascii=False) if as_json else _report(found))
    return NOT_TRUSTED if found["problems"] else TRUSTED


def _folder() -> Path:
    """The folder to clear, also one that is not used because others could write there."""
    folder = folder_in_use().path
    if folder is None or folder.is_symlink():
        raise InputError(f"--clear-cache: {folder_in_use().refusal}")
    return folder


def _cache(chosen: CacheFolder) -> dict[str, Any]:
    folder, refusal = chosen
    held = CacheContents(0, 0, 0) if folder is None else contents(folder)
    return {
        "folder": None if folder is None else str(folder),
        "refusal": refusal,
        "of_this_project": folder is not None and folder == default_folder(),
        "size_b": held.size,
        "lowered_programs": held.lowered,
        "compiled_programs": held.compiled,
    }


def _clear(folder: Path, *, sure: bool, as_json: bool) -> int:
    held = contents(folder)
    if not sure and held.lowered + held.compiled:
        if not sys.stdin.isatty():
            raise InputError(f"{folder}: --clear-cache asks first, and there is nobody to ask. Add --yes.")
        typer.confirm(f"Remove the compiled programs in {folder} ({_size(held.size)})?", abort=True, err=True)
    try:
        removed = clear(folder)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be removed: {error.strerror}.") from None
    if as_json:
        print(
            json.dumps({"folder": str(folder), "removed": removed.lowered + removed.compiled, "size_b": removed.size})
        )
        return TRUSTED
    print(f"Removed {removed.lowered + removed.compiled:,} programs, {_size(removed.size)}, from {folder}.")
    if held.compiled > removed.compiled:
        print(f"Left in place: {held.compiled - removed.compiled:,} compiled by JAX, perhaps for other projects.")
    return TRUSTED


def _problems(found: dict[str, Any]) -> list[str]:
    """What keeps commands from running, each with the next step."""
    problems = [
        f"{one['name']} {one['version'] or 'is missing'}; needed: {one['wanted'] or 'any version'}. "
        f'Install it: pip install "{_with_extra(one["extra"])}".'
        for one in found["packages"]
        if not one["suits"] and (one["extra"] is None or one["version"] is not None)
    ]
    if not found["float64"]:
        problems.append("JAX does not compute in float64 here. Unset JAX_ENABLE_X64 and try again.")
    if found["kernels"] is not None:
        problems.append(f"The kernels cannot be imported: {found['kernels']}")
    return problems


def _report(found: dict[str, Any]) -> str:
    import jax

    cache, terminal, presets = found["cache"], found["terminal"], found["presets"]
    devices = [one["kind"] for one in found["devices"]]
    rows = [
        ("energymodel", f"{found['version']} on Python {found['python']}"),
        ("machine", f"{found['platform']}, {found['cores']} cores"),
        ("jax", f"{jax.__version__}, backend {found['backend']}"),
        ("devices", ", ".join(f"{devices.count(kind)} x {kind}" for kind in dict.fromkeys(devices))),
        ("float64", "yes; commands use it" if found["float64"] else "no"),
        ("kernels", "importable" if found["kernels"] is None else "not importable"),
        ("presets", f"{sum(presets.values()):,} in {len(presets)} categories; energymodel presets lists them"),
        *_cache_rows(cache),
        ("terminal", f"{terminal['columns']} columns, {terminal['encoding']}" if terminal["interactive"] else "none"),
    ]
    lines = [f"{name:<12} {text}" for name, text in rows]
    return "\n".join([*lines, "", *_packages(found["packages"]), "", *_findings(found["problems"])])


def _cache_rows(cache: dict[str, Any]) -> list[tuple[str, str]]:
    unused = [("", f"not used: {cache['refusal']}")] if cache["refusal"] else []
    if cache["folder"] is None:
        return [("cache", unused[0][1])]
    held = f"{_size(cache['size_b'])}, {_programs(cache)}"
    return [("cache", cache["folder"]), *unused, ("", held), ("", "clear it: energymodel doctor --clear-cache")]


def _programs(cache: dict[str, Any]) -> str:
    return f"{cache['lowered_programs']:,} lowered and {cache['compiled_programs']:,} compiled programs"


def _packages(listed: list[dict[str, Any]]) -> list[str]:
    from energymodel.cli.installation import EXTRAS

    lines = ["Packages", *(_package(one) for one in listed if one["extra"] is None), "", "Optional packages"]
    for extra, purpose in EXTRAS.items():
        ones = [one for one in listed if one["extra"] == extra]
        if not ones:  # an extra of another version
            continue
        lines += [f"{extra}: {purpose}", *(_package(one) for one in ones)]
        if any(one["version"] is None for one in ones):
            lines.append(f'  install: pip install "{_with_extra(extra)}"')
    return lines


def _package(one: dict[str, Any]) -> str:
    if one["version"] is None:
        return f"  {one['name']:<20} missing"
    remark = "" if one["suits"] else f", but {one['wanted']} is needed"
    return f"  {one['name']:<20} {one['version']}{remark}"


def _with_extra(extra: str | None) -> str:
    return f"energymodel[{extra}]" if extra else "energymodel"


def _findings(problems: list[str]) -> list[str]:
    return [f"Problem: {one}" for one in problems] or ["Everything that the commands need is here."]


def _size(size: int) -> str:
    from energymodel.units import format_quantity

    return format_quantity(float(size), "B", digits=3)
