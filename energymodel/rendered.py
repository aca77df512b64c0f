"""Results that notebooks render, and that draw or tabulate themselves, by a module of a higher layer.

A result class of a lower layer takes the methods of `Rendered`. They ask the module `energymodel.report.notebook`,
which is known here by name only and imported on the first such call, so that no layer imports one above it and
`import energymodel` loads nothing more.
"""

import importlib
from typing import Any


def _renderer() -> Any:
    return importlib.import_module("energymodel.report.notebook")


class Rendered:
    """Methods of a result that can be rendered."""

    def __str__(self) -> str:
        """A table of its numbers with units; what is traced, or many runs at once, as `repr` has it."""
        return _renderer().text(self)

    def _repr_html_(self) -> str:
        """A table and a figure, for notebooks."""
        return _renderer().html(self)

    def plot(self, axes: Any = None) -> Any:
        """Draw it with matplotlib, on a new figure of pyplot, which a notebook shows, unless axes are given.

        **Returns:** the axes.

        **Raises:** `InputError` that names the extra to install where matplotlib is missing.
        """
        return _renderer().plot(self, axes)

    def to_dataframe(self) -> Any:
        """It as a table of pandas, numbers in SI, with their units in its `attrs`.

        **Raises:** `InputError` that says how to install pandas where it is missing.
        """
        return _renderer().to_dataframe(self)
