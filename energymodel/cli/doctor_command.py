"""`energymodel doctor`: versions, optional packages, devices and the cache, what is missing, and what to do."""

import importlib.metadata
import os
import platform
import shutil
import sys
from typing import Any

import typer

from energymodel.cli import shell
from energymodel.cli.options import flag
from energymodel.cli.shell import Delivery
from energymodel.errors import InputError
from energymodel.report import answers
from energymodel.runtime.cache_folder import CacheContents, clear, contents, default_folder, folder_in_use

PACKAGE = "energymodel"
EXTRAS = {
    "plot": "figures with matplotlib (-o FILE.png or .pdf, .plot())",
    "notebook": "results as figures and as tables of pandas and xarray",
    "monitor": "power of NVIDIA GPUs while a job runs",
    "explore": "the explorer in the browser",
    "sweep": "results of sweeps as labeled arrays on disk",
    "dask": "sweeps on a cluster",
    "oracles": "Ipopt and SALib, which check this project's solver and Sobol indices",
}
"""What a person gets from each extra."""
DEVELOPMENT = ("test", "lint", "docs", "benchmark")
"""Extras for people who change this project."""


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
    present = _facts()
    return show.deliver(answers.doctor_answer(present, EXTRAS, _problems(present)))


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


def packages() -> list[dict[str, Any]]:
    """Packages that this one needs, then those of the extras that a user may want.

    Each has its name, version (`None` where it is missing), the versions `wanted`, the `extra` that it is for, and
    whether it `suits`.
    """
    from packaging.requirements import Requirement

    order, listed = [None, *EXTRAS], []
    for line in importlib.metadata.requires(PACKAGE) or []:
        required = Requirement(line)
        marker = required.marker
        wanted_by = [name for name in order if marker is None or marker.evaluate({"extra": name or ""})]
        if required.name != PACKAGE and wanted_by:
            version = _version(required.name)
            suits = version is not None and required.specifier.contains(version, prereleases=True)
            about = {"name": required.name, "version": version, "wanted": str(required.specifier)}
            listed.append(about | {"extra": wanted_by[0], "suits": suits})
    return sorted(listed, key=lambda package: order.index(package["extra"]))


def _facts() -> dict[str, Any]:
    """All that helps to answer why a command does not run, or runs slowly, on this machine."""
    import jax

    from energymodel.scenarios.files import CATEGORIES, names

    folder, refusal = folder_in_use()
    held = CacheContents(0, 0, 0) if folder is None else contents(folder)
    with jax.enable_x64(True):
        float64 = jax.numpy.zeros(1).dtype == "float64"
    return {
        "version": importlib.metadata.version(PACKAGE),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "backend": jax.default_backend(),
        "devices": [{"kind": device.device_kind, "platform": device.platform} for device in jax.devices()],
        "float64": bool(float64),
        "packages": packages(),
        "presets": {category: len(names(category)) for category in CATEGORIES},
        "kernels": _kernels(),
        "terminal": {
            "interactive": sys.stdout.isatty(),
            "columns": shutil.get_terminal_size().columns,
            "encoding": sys.stdout.encoding,
        },
        "cache": {
            "folder": None if folder is None else str(folder),
            "refusal": refusal,
            "of_this_project": folder is not None and folder == default_folder(),
            "size_b": held.size,
            "lowered_programs": held.lowered,
            "compiled_programs": held.compiled,
        },
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _kernels() -> str | None:
    """Why the accelerator kernels cannot be imported, or `None`."""
    try:
        import energymodel_kernels  # noqa: F401
    except Exception as error:  # whatever is wrong with them is what the person wants to know
        return f"{type(error).__name__}: {error}"
    return None
