"""Axes of a grid, numbers with a unit or choices of components, and their text, such as "8..64 Mi token log 20".

What is wrong in a text is named, and the right form is shown with its own numbers.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.units import parse_quantity, whole_number

MOST_VALUES = 10**8
"""Values of an axis, which are held in memory: 800 MB."""
Range = tuple[float, float]
"""Lowest and highest value."""
EXAMPLE = 'Write for example "8..64 Mi token log 20", "0.5:1:11" or "1, 2, 4".'
SCALES = ("linear", "log")
_USUAL_COUNT = "20"
_LEADING = re.compile(r"\s*[+-]?[\d.,_]+(?:[eE][+-]?\d+)?(?P<rest>.*)")
_OTHER_SIGN = re.compile(r"\bto\b|[–—]|(?<=\d)-(?=[\d.])")
_JOINED = re.compile(r"[,;:](?=\s|$)|[;:]")


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
        """Name of a value in a table: its label, or the number."""
        if self.labels is not None:
            return self.labels[index]
        return float(self.values[index]) if self.numeric else index

    def labels_or_values(self) -> list[Any]:
        """Name of each value."""
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
        kinds = {
            label: (jax.tree.structure(choice), [*map(np.shape, jax.tree.leaves(choice))])
            for label, choice in choices.items()
        }
        first, *others = kinds
        for label in others:
            if kinds[label][0] != kinds[first][0]:
                raise InputError(
                    f'axis {name}: "{label}" and "{first}" consist of different components. Sweep them one at a time.'
                )
            if kinds[label] != kinds[first]:
                raise InputError(
                    f'axis {name}: arrays of "{label}" and "{first}" differ in shape. Give those of one shape.'
                )
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *choices.values())
        return cls(name, stacked, "1", tuple(choices))


def _count(name: str, count: int) -> int:
    if not isinstance(count, int) or not 1 <= count <= MOST_VALUES:
        raise InputError(f"axis {name}: {count} values. Give a whole number of 1 to {MOST_VALUES:,}.")
    return count


def check_axes(axes: Sequence[Axis]) -> None:
    """There are axes, and every axis has its own name."""
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


def parse_axis(name: str, text: Any, unit: str = "1", *, allow_negative: bool = False) -> Axis:
    """An axis from text: `LOW..HIGH UNIT [linear|log] COUNT`, `LOW:HIGH:COUNT[:log]`, or values with commas.

    The low end may leave its unit to the high end, listed values to the last one. Numbers and arrays are taken in SI.
    """
    if isinstance(text, Axis):
        return dataclasses.replace(text, name=name)
    if not isinstance(text, str):
        try:
            return Axis.of(name, np.ravel(np.asarray(text, np.float64)), unit)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"axis {name}: {text!r} are not numbers in {unit}. {EXAMPLE}") from None
    if ".." in text or ":" in text:
        return _parse_range(name, text.strip(), unit, allow_negative)
    if _OTHER_SIGN.search(text):
        raise InputError(f'axis {name}: "{text.strip()}" has no ".." between the ends of its range. {EXAMPLE}')
    return Axis.of(name, _quantities(name, text.split(","), unit, allow_negative), unit)


def _parse_range(name: str, text: str, unit: str, allow_negative: bool) -> Axis:
    """The axis of a range; an error shows the range in the right form, with the parts that are wrong replaced."""
    sign, low, high, scale, count = _range_parts(name, text, unit)

    def wrong(what: str, *, low: str = low, high: str = high, scale: str = scale, count: str = count) -> InputError:
        if unit != "1" and not _unit_of(high):
            high = f"{high} {_unit_of(low) or unit}"
        count, scale = count if _is_count(count) else _USUAL_COUNT, scale if scale in SCALES else ""
        if sign == ":":
            form = ":".join((low, high, count, *([scale] if scale == "log" else [])))
        else:
            form = " ".join(filter(None, (f"{low}..{high}", scale, count)))
        return InputError(f'axis {name}: {what} Write for example "{form}".')

    for end in (low, high):
        if not _LEADING.match(end):
            raise InputError(f'axis {name}: "{end}" is not a number. A range is LOW..HIGH COUNT. {EXAMPLE}')
    if count in SCALES and _is_count(scale):
        order = f'before "{count}"' if sign == ":" else f'last, after "{count}"'
        raise wrong(f"the number of values, {scale}, comes {order}.", count=scale, scale=count)
    if not count or count in SCALES:
        raise wrong("the number of values is missing.", scale=count or scale)
    if scale and scale not in SCALES:
        near = suggest(scale.lower(), SCALES)
        named = [scale for scale in SCALES if scale in near]  # both where nothing is near
        raise wrong(f'unknown scale "{scale}". {near}', scale=named[0] if len(named) == 1 else "")
    values, high_unit = whole_number(count), _unit_of(high)
    if values is None:
        raise wrong(f'"{count}" is not a number of values.')
    if not 1 <= values <= MOST_VALUES:
        raise wrong(f"{count} values: give 1 to {MOST_VALUES:,}.", count="")
    if unit != "1" and _LEADING.fullmatch(high) and not high_unit:
        raise wrong(f'"{high}" has no unit.')
    first, last = _quantities(name, [low, high], unit, allow_negative)
    if first > last:  # the low end may have its unit from the other
        end = low if _unit_of(low) or not high_unit else f"{low} {high_unit}"
        raise wrong(f"{low} is above {high}. Give the low end first.", low=high, high=end)
    return (Axis.log if scale == "log" else Axis.linear)(name, first, last, values, unit)


def _range_parts(name: str, text: str, unit: str) -> tuple[str, str, str, str, str]:
    """Sign between the ends, low and high end, scale and number of values; empty where a part is missing."""
    sign = ".." if ".." in text else ":"
    low, _, rest = (part.strip() for part in text.partition(sign))
    if sign == ":":
        high, count, scale, *more = [*(part.strip() for part in rest.split(":")), "", ""]
        if not low or not high or any(more):
            raise InputError(f'axis {name}: "{text}" is not LOW:HIGH:COUNT or LOW:HIGH:COUNT:log. {EXAMPLE}')
    else:
        rest = rest.strip(".").strip()
        words = _JOINED.sub(" ", rest).split()
        if words != rest.split():
            form = f"{low}..{' '.join(words)}"
            raise InputError(f'axis {name}: spaces separate the parts of "{text}". Write for example "{form}".')
        if not low or not words or words[0] in SCALES:
            raise InputError(f'axis {name}: "{text}" has no {"high" if low else "low"} end. {EXAMPLE}')
        high, scale, count = _parse_words(words, unit)
    return sign, low, high, scale, count.lower() if count.lower() in SCALES else count


def _parse_words(words: Sequence[str], unit: str) -> tuple[str, str, str]:
    """High end, scale and number of values of `HIGH UNIT [linear|log] COUNT`; empty where a part is missing."""
    if len(words) == 1 or (not _is_count(words[-1]) and _is_quantity(" ".join(words), unit)):
        return " ".join(words), "", ""
    *words, count = words
    *shorter, last = words
    if count.lower() in SCALES:
        is_scale = _is_count(last)  # they change places
    else:
        near = last in SCALES or suggest(last.lower(), SCALES).startswith("Did")
        is_scale = not _is_quantity(" ".join(words), unit) and (near or _is_quantity(" ".join(shorter), unit))
    return (" ".join(shorter), last, count) if shorter and is_scale else (" ".join(words), "", count)


def _quantities(name: str, parts: Sequence[str], unit: str, allow_negative: bool) -> list[float]:
    parts = [part.strip() for part in parts]
    if not all(parts):
        raise InputError(f"axis {name}: a value is missing. {EXAMPLE}")
    suffix = _unit_of(parts[-1]) if unit != "1" else ""
    written = [f"{part} {suffix}" if suffix and _LEADING.match(part) and not _unit_of(part) else part for part in parts]
    return [parse_quantity(part, unit, f"axis {name}", allow_negative=allow_negative) for part in written]


def _unit_of(text: str) -> str:
    match = _LEADING.match(text)
    return match["rest"].strip() if match else ""


def _is_count(text: str) -> bool:
    return whole_number(text) is not None


def _is_quantity(text: str, unit: str) -> bool:
    if unit != "1" and not _unit_of(text):
        return False
    try:
        parse_quantity(text, unit, "axis", allow_negative=True)
    except InputError:
        return False
    return True
