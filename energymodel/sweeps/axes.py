"""Along which axes does a sweep run: which numbers or components, at which values, in which unit?"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.units import whole_number

MOST_VALUES = 10**8
"""Values of an axis, which stand in memory: 800 MB."""
EXAMPLE = 'Write for example "8..64 Mi token log 20", "0.5:1:11" or "1, 2, 4".'


@dataclasses.dataclass(frozen=True)
class Axis:
    """One named axis of a grid.

    `values` is an array in SI, or a pytree of arrays (a layout, a component) whose first axis counts the choices;
    `labels` name the choices.
    """

    name: str
    values: Any
    unit: str = "1"
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        leaves = jax.tree.leaves(self.values)
        if not leaves or any(np.ndim(leaf) == 0 or not np.size(leaf) for leaf in leaves):
            raise InputError(f"axis {self.name}: no values. {EXAMPLE}")
        if len({np.shape(leaf)[0] for leaf in leaves}) > 1:
            raise InputError(f"axis {self.name}: its arrays differ in length. Stack one entry per choice.")
        for leaf in map(np.asarray, leaves):
            if leaf.dtype.kind not in "biuf":
                raise InputError(f"axis {self.name}: {leaf.item(0)!r} is not a real number. {EXAMPLE}")
        if self.numeric and not np.all(np.isfinite(self.values)):
            raise InputError(f"axis {self.name}: a value is not a finite number.")

    def __len__(self) -> int:
        return int(np.shape(jax.tree.leaves(self.values)[0])[0])

    @property
    def numeric(self) -> bool:
        """Whether the axis is a number that varies, and not a choice of components."""
        return isinstance(self.values, np.ndarray) and self.values.ndim == 1

    def at(self, index: int) -> Any:
        """Value at an index, in SI."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[index], self.values)

    def label(self, index: int) -> Any:
        """What stands for a value in a table: its label, or the number."""
        if self.labels is not None:
            return self.labels[index]
        return float(self.values[index]) if self.numeric else index

    def labels_or_values(self) -> list[Any]:
        """What stands for each value."""
        return [self.label(index) for index in range(len(self))]

    @classmethod
    def linear(cls, name: str, low: float, high: float, count: int, unit: str = "1") -> "Axis":
        """Equal steps from `low` to `high`."""
        with np.errstate(all="ignore"):  # what overflows is refused as not finite
            return cls(name, np.linspace(low, high, _count(name, count)), unit)

    @classmethod
    def log(cls, name: str, low: float, high: float, count: int, unit: str = "1") -> "Axis":
        """Equal ratios from `low` to `high`, both positive."""
        if not (low > 0 and high > 0):
            raise InputError(f"axis {name}: {low:g} to {high:g} has no logarithm. Use linear steps.")
        with np.errstate(all="ignore"):
            return cls(name, np.geomspace(low, high, _count(name, count)), unit)

    @classmethod
    def of(cls, name: str, values: Iterable[float | int], unit: str = "1") -> "Axis":
        """Explicit values in SI."""
        return cls(name, np.array([float(value) for value in values], np.float64), unit)

    @classmethod
    def choice(cls, name: str, choices: Mapping[str, Any]) -> "Axis":
        """Components of one structure, by label: hardware presets, markets, layouts.

        **Raises:** `InputError` where the structures differ, as between a dense model and a component of another law,
        or their arrays differ in shape, or something in them is not a real number.
        """
        if not choices:
            raise InputError(f"axis {name}: no choices. Give at least one preset.")
        first, *others = choices
        for label in others:
            if jax.tree.structure(choices[label]) != jax.tree.structure(choices[first]):
                raise InputError(
                    f'axis {name}: "{label}" and "{first}" consist of different components. Sweep them one at a time.'
                )
            shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(choices[one])] for one in (first, label)]
            if shapes[0] != shapes[1]:
                raise InputError(
                    f'axis {name}: arrays of "{label}" and "{first}" differ in shape. Give those of one shape.'
                )
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *choices.values())
        return cls(name, stacked, "1", tuple(choices))


def _count(name: str, count: Any) -> int:
    number = count if isinstance(count, int) else whole_number(str(count))
    if number is None:
        raise InputError(f'axis {name}: "{count}" is not a number of values. {EXAMPLE}')
    if not 1 <= number <= MOST_VALUES:
        raise InputError(f"axis {name}: {count} values. Give 1 to {MOST_VALUES:,}.")
    return number


def check_axes(axes: Sequence[Axis]) -> None:
    """There are axes, and every axis has its own name.

    **Raises:** `InputError`.
    """
    names = [axis.name for axis in axes]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"axis {twice[0]}: given twice. Give each axis once.")
    if not axes:
        raise InputError(f"A sweep needs at least one axis. {EXAMPLE}")


def cast(tree: Any, dtype: Any) -> Any:
    """The same tree with its floating-point arrays in another precision."""

    def convert(leaf: Any) -> Any:
        floating = eqx.is_array(leaf) and np.issubdtype(leaf.dtype, np.floating)
        return np.asarray(leaf).astype(dtype) if floating else leaf

    return jax.tree.map(convert, tree)
