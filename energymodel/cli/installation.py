"""What is installed: versions, optional packages and the extras that bring them, devices, presets, kernels?"""

import importlib.metadata
import os
import platform
import shutil
import sys
from typing import Any, NamedTuple

from packaging.requirements import Requirement

PACKAGE = "energymodel"
EXTRAS = {
    "plot": "figures with matplotlib (--plot, .plot())",
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


class Installed(NamedTuple):
    """A package that this one needs, always or for an extra."""

    name: str
    version: str | None
    """`None` where it is missing."""
    wanted: str
    """Versions that will do."""
    extra: str | None

    @property
    def suits(self) -> bool:
        """Whether it is there, in a version that will do."""
        return self.version is not None and Requirement(f"x{self.wanted}").specifier.contains(
            self.version, prereleases=True
        )


def packages() -> list[Installed]:
    """Packages that this one needs, then those of the extras that a user may want."""
    found = []
    for line in importlib.metadata.requires(PACKAGE) or []:
        required = Requirement(line)
        extra = next((one for one in EXTRAS if _only_for(required, one)), None)
        if required.name != PACKAGE and (extra or _always(required)):
            found.append(Installed(required.name, _version(required.name), str(required.specifier), extra))
    return sorted(found, key=lambda one: (one.extra is not None, list(EXTRAS).index(one.extra) if one.extra else 0))


def facts() -> dict[str, Any]:
    """All that helps to answer why a command does not run, or runs slowly, on this machine."""
    import jax

    from energymodel.scenarios.files import CATEGORIES, names

    with jax.enable_x64(True):
        float64 = jax.numpy.zeros(1).dtype == "float64"
    return {
        "version": importlib.metadata.version(PACKAGE),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "backend": jax.default_backend(),
        "devices": [{"kind": one.device_kind, "platform": one.platform} for one in jax.devices()],
        "float64": bool(float64),
        "packages": [one._asdict() | {"suits": one.suits} for one in packages()],
        "presets": {category: len(names(category)) for category in CATEGORIES},
        "kernels": _kernels(),
        "terminal": {
            "interactive": sys.stdout.isatty(),
            "columns": shutil.get_terminal_size().columns,
            "encoding": sys.stdout.encoding,
        },
    }


def _only_for(required: Requirement, extra: str) -> bool:
    marker = required.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _always(required: Requirement) -> bool:
    return required.marker is None or required.marker.evaluate({"extra": ""})


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
