"""`energymodel doctor`: what is installed, what is missing, and what the cache holds."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from energymodel.cli.delivery import Delivery
from energymodel.cli.shell import guarded
from energymodel.errors import InputError
from energymodel.runtime.cache_folder import CacheContents, CacheFolder, clear, contents, default_folder, folder_in_use


@guarded
def command(
    show: Delivery,
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove the compiled programs; the next runs compile again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing them.")] = False,
) -> int:
    """Say what is installed here and what is missing.

    Versions, devices, optional packages, and the folder that keeps compiled programs.

    Example: energymodel doctor --clear-cache
    """
    from energymodel.report.answers.doctor import cleared_answer, doctor_answer

    show.check()
    if clear_cache:
        return show.deliver(cleared_answer(*_clear(_folder(), sure=yes)))
    if yes:
        raise InputError("--yes answers the question of --clear-cache. Add --clear-cache, or leave --yes out.")
    from energymodel.cli.installation import EXTRAS, facts

    present = facts() | {"cache": _cache(folder_in_use())}
    return show.deliver(doctor_answer(present, EXTRAS, _problems(present)))


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


def _clear(folder: Path, *, sure: bool) -> tuple[str, int, int, int]:
    """Folder, programs removed, their size [B], and programs left in place."""
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


def _problems(present: dict[str, Any]) -> list[str]:
    """What keeps commands from running, each with the next step."""
    problems = [
        f"{package['name']} {package['version'] or 'is missing'}; needed: {package['wanted'] or 'any version'}. "
        'Install it: pip install "energymodel' + (f"[{package['extra']}]" if package["extra"] else "") + '".'
        for package in present["packages"]
        if not package["suits"] and (package["extra"] is None or package["version"] is not None)
    ]
    if not present["float64"]:
        problems.append("JAX does not compute in float64 here. Unset JAX_ENABLE_X64 and try again.")
    if present["kernels"] is not None:
        problems.append(f"The kernels cannot be imported: {present['kernels']}")
    return problems
