"""Results that show themselves in a notebook, as a figure or as a table, by what lies in a higher layer.

A result class of a lower layer takes the methods of `Shown`. They ask the module `energymodel.report.notebook`, which
is known here by name only and imported on the first such call. So no layer imports one above it, `import energymodel`
loads nothing more, and whoever wants results shown in another way calls `shown_by` with a module of their own that has
the four functions `html`, `plot`, `to_dataframe` and `to_xarray`.
"""

import importlib
from typing import Any

_MODULE = ["energymodel.report.notebook"]


def shown_by(module: str) -> None:
    """Let a module of this name show all results."""
    _MODULE[:] = [module]


def _shower() -> Any:
    return importlib.import_module(_MODULE[-1])


class Shown:
    """Methods of a result that can be shown."""

    def _repr_html_(self) -> str:
        """A table and a figure, for notebooks."""
        return _shower().html(self)

    def plot(self, axes: Any = None) -> Any:
        """Draw it with matplotlib, on a new figure of pyplot, which a notebook shows, unless axes are given.

        **Returns:** the axes.

        **Raises:** `InputError` that names the extra to install where matplotlib is missing.
        """
        return _shower().plot(self, axes)

    def to_dataframe(self) -> Any:
        """It as a table of pandas, numbers in SI.

        **Raises:** `InputError` that says how to install pandas where it is missing.
        """
        return _shower().to_dataframe(self)

    def to_xarray(self) -> Any:
        """It as an `xarray.Dataset`, numbers in SI with their units as attributes.

        **Raises:** `InputError` that says how to install xarray where it is missing.
        """
        return _shower().to_xarray(self)
