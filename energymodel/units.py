"""Quantities as a person writes them, in SI, and back as a person reads them.

They are converted once, at the edge of the program; inside there are only SI numbers. pint does the dimensional
analysis. Its units are defined in `units.toml`, because those that come with it have no tokens, FLOP or dollars, read
"Gb" as gilberts, and count 365.25 days a year; here a year has 365 days (8,760 h) and a month is a twelfth of it, as in
capital accounting (docs/physics.md B9). A number in its exact SI unit is read without importing pint.
"""

import difflib
import functools
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError

_DATA = tomllib.loads(Path(__file__).with_name("units.toml").read_text(encoding="utf-8"))
UNITS: dict[str, dict[str, Any]] = _DATA["units"]
"""What a quantity in a unit is called, an example, and the extent of its numbers, by unit."""
SI_UNITS = frozenset(UNITS)
"""The unit strings that the project's quantities use: a number with one of these is converted without pint."""
_MAGNITUDES: dict[str, float] = _DATA["magnitudes"]
_BILLIONS: dict[str, float] = _DATA["billions"]
_COUNTED = ("1", "token", "USD")
_NUMBER = re.compile(
    r"\s*(?P<number>[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d(?:_?\d)*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?)\b)"
    r"(?P<unit>.*)",
    re.IGNORECASE | re.DOTALL,
)
_UNIT = re.compile(r"[A-Za-zµμΩ%°$²³·*/^()\d\s.+-]*")
_CELSIUS = frozenset({"°C", "degC", "°c", "degc", "celsius", "Celsius"})
_LONGEST_TEXT = 80
MOST_DIGITS = 30  # of a count: none is as large, and Python takes long to read thousands
_PREFIXED = frozenset({"W", "J", "B", "B/s", "FLOP", "FLOP/s", "Hz", "V", "USD"})
"""Units that are converted from their multiples without importing pint, which takes longer than reading a scenario."""
_LARGEST = sys.float_info.max


@functools.cache
def _registry() -> Any:
    import pint

    no_file: Any = None  # only the units below
    registry = pint.UnitRegistry(no_file)
    registry.load_definitions(_DATA["definitions"].splitlines())
    return registry


def _describe(unit: str) -> tuple[str, str]:
    about = UNITS.get(unit, {"noun": f"quantity in {unit}", "example": f"1 {unit}"})
    return about["noun"], about["example"]


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _quoted(text: Any) -> str:
    quoted = "".join(each if each.isprintable() else "?" for each in (text if isinstance(text, str) else repr(text)))
    return f'"{quoted[:_LONGEST_TEXT]}…"' if len(quoted) > _LONGEST_TEXT else f'"{quoted}"'


def _nearest_unit(unit: str) -> str:
    words = [word for word in re.findall(r"[A-Za-zµμΩ]+", unit) if word not in _registry()]
    if not words:
        return ""
    # Only the last part of a compound needs correction as a rule.
    usual = ["W", "kW", "MW", "GW", "kWh", "MWh", "GWh", "FLOP", "TFLOP", "PFLOP", "GB", "TB", "Gbit", "GHz", "MHz"]
    usual += ["tokens", "token", "days", "day", "hours", "hour", "years", "month", "USD", "watt", "joule", "kg"]
    near = difflib.get_close_matches(words[0].lower(), [unit.lower() for unit in usual], n=1, cutoff=0.6)
    return f' Did you mean "{next(unit for unit in usual if unit.lower() == near[0])}"?' if near else ""


def convert(value: float, unit: str, target: str, name: str, *, difference: bool = False) -> float:
    """Convert a number in any unit to the SI unit `target`.

    `°C` is allowed where `target` is `K`: a
    temperature is shifted by 273.15, a `difference` is not.

    **Arguments:**

    - `value`: the number in `unit`.
    - `unit`: unit text, such as `"MW"` or `"USD/(kW month)"`.
    - `target`: SI unit, such as `"W"`; `"1"` for a dimensionless number.
    - `name`: what the number is, for the message.
    - `difference`: whether a temperature is a difference.

    **Returns:** the number in `target`.

    **Raises:** `InputError` where the unit is unknown or of another dimension.
    """
    if unit == target or unit == f"{target}s":
        return float(value)
    if target in _PREFIXED and (prefix := unit.removesuffix(target)) in _MAGNITUDES and prefix:
        return float(value) * _MAGNITUDES[prefix]
    noun, example = _describe(target)
    written = f"{value:g} {unit}".strip()
    advice = f'write {_article(noun)} such as "{example}".'
    if not unit:
        raise InputError(f"{name}: {_quoted(written)} has no unit; {advice}")
    if unit in _CELSIUS and target == "K":
        return float(value) if difference else float(value) + ZERO_CELSIUS
    if not _UNIT.fullmatch(unit):
        raise InputError(f"{name}: cannot read the unit of {_quoted(written)}; {advice}")
    registry = _registry()
    import pint

    text = unit.replace("%", " percent").replace("$", "USD").replace("·", "*")
    text = re.sub(r"\b(chip|GPU|TPU)s?-hours?\b", r"(\1 * hour)", text)
    try:
        return float(registry.Quantity(float(value), registry.parse_units(text)).to(target if target != "1" else "").m)
    except pint.DimensionalityError:
        raise InputError(f"{name}: {_quoted(written)} is not {_article(noun)}; {advice}") from None
    except Exception as error:  # pint passes on errors of the tokenizer and of arithmetic
        hint = _nearest_unit(unit) if isinstance(error, pint.UndefinedUnitError) else ""
        raise InputError(f"{name}: unknown unit {_quoted(unit)} in {_quoted(written)}; {advice}{hint}") from None


def parse_quantity(text: Any, unit: str, name: str, *, allow_negative: bool = False, difference: bool = False) -> float:
    """Read what a person wrote, such as "25 MW" or "15.6 T tokens", as a number in the SI unit `unit`.

    A word or SI or binary prefix may stand before the unit ("16 Mi tokens", "3 billion USD"). A number without
    a unit is allowed only where `unit` is `"1"`.

    **Arguments:**

    - `text`: number and unit, or a bare number; whatever else a file may hold is refused.
    - `unit`: SI unit wanted, one of `SI_UNITS`.
    - `name`: what the number is: a dotted path or option, for the message.
    - `allow_negative`: whether a negative result is legal.
    - `difference`: whether a temperature is a difference, so that 5 °C is 5 K.

    **Returns:** the number in `unit`, finite.

    **Raises:** `InputError`: no number, no unit, unknown unit, another dimension, negative, NaN or infinite.
    """
    noun, example = _describe(unit)
    advice = f'write {_article(noun)} such as "{example}".'
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise InputError(f"{name}: {_quoted(text)} is not a quantity; {advice}")
    match = _NUMBER.fullmatch(text if isinstance(text, str) else f"{text:.17g}" if abs(text) < _LARGEST else "inf")
    if match is None or len(match["unit"]) > _LONGEST_TEXT:
        raise InputError(f"{name}: cannot read {_quoted(text)}; {advice}")
    number = float(match["number"].replace(",", "").replace("_", ""))
    rest = " ".join(match["unit"].split())
    if not math.isfinite(number):
        raise InputError(f"{name}: {_quoted(text)} is not a finite number; {advice}")
    first, _, following = rest.partition(" ")
    magnitude = _MAGNITUDES.get(first) or (_BILLIONS.get(first) if unit in _COUNTED else None)
    if magnitude is not None:
        number, rest = number * magnitude, following
    if not rest and unit != "1":
        raise InputError(f"{name}: {_quoted(text)} has no unit; {advice}")
    try:
        value = convert(number, rest or "1", unit, name, difference=difference)
    except InputError as error:
        # Say what was written, not what became of it after a prefix was taken out.
        raise InputError(str(error).replace(_quoted(f"{number:g} {rest}"), _quoted(text))) from None
    if not math.isfinite(value):
        raise InputError(f"{name}: {_quoted(text)} is not a finite number; {advice}")
    if value < 0 and not allow_negative:
        problem = "below absolute zero" if unit == "K" and not difference else "negative"
        raise InputError(f"{name}: {_quoted(text)} is {problem}; {advice}")
    return value


def plural(noun: str) -> str:
    """The plural of a noun that things are counted by: batches, sizes, groups."""
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"


def counted(count: int, noun: str) -> str:
    """So many of a thing: 1 row, 12 rows."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def whole_number(text: str) -> int | None:
    """A whole number written in digits, grouped or not; nothing for any other text, and beyond `MOST_DIGITS` digits."""
    digits = text.strip().replace(",", "").replace("_", "")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS else None


_PREFIXES = {-18: "a", -15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
_UNPREFIXED = frozenset(
    {"K/W", "1/K", "1/K^2", "J/K", "kg", "kg/B", "kg/J", "kg/m^2", "kg/m^3", "K/s", "s", "m^2", "m^2 s/B", "m^3"}
    | {"1/m^2", "1/s", "J s", "USD/W"}
)
_SEPARATED = frozenset({"token", "USD", "token/s"})
_YEAR, _DAY, _HOUR, _KILOWATT_HOUR = 31_536_000.0, 86_400.0, 3_600.0, 3.6e6
# Smallest magnitude at which a unit is used, its size in SI, its name.
_SCALES: dict[str, list[tuple[float, float, str]]] = {
    "s": [
        (2 * _YEAR, _YEAR, "years"),
        (2 * _DAY, _DAY, "days"),
        (2 * _HOUR, _HOUR, "hours"),
        (120.0, 60.0, "min"),
        (1.0, 1.0, "s"),
        (1e-3, 1e-3, "ms"),
        (1e-6, 1e-6, "µs"),
        (0.0, 1e-9, "ns"),
    ],
    "J": [(3.6e12, 3.6e12, "GWh"), (3.6e9, 3.6e9, "MWh"), (0.1 * _KILOWATT_HOUR, _KILOWATT_HOUR, "kWh")],
    "kg": [(1e3, 1e3, "t")],
    "kg/J": [(0.0, 1.0 / _KILOWATT_HOUR, "kg/kWh")],
    "USD/J": [(0.0, 1.0 / _KILOWATT_HOUR, "USD/kWh")],
    "USD/s": [(0.0, 1.0 / _HOUR, "USD/h")],
    "USD/(W s)": [(0.0, 1.0 / (1e3 * _YEAR / 12.0), "USD/(kW month)")],
    "m^2": [(1.0, 1.0, "m^2"), (0.0, 1e-6, "mm^2")],
    "W/m^2": [(0.0, 1e4, "W/cm^2")],
}


def _number(value: float, digits: int) -> str:
    if value == round(value) and abs(value) < 10.0**digits:
        return f"{value:.0f}"
    text = f"{value:.{digits}g}"
    # "1.638e+04" is harder to read than "16380".
    return f"{float(text):.0f}" if "e" in text and 1 <= abs(value) < 1e6 else text.replace("e+", "e")


def format_quantity(value: float, unit: str, *, digits: int = 4, difference: bool = False) -> str:
    """Write an SI number as a person reads it: SI prefixes, kWh for large energies, days, °C.

    `parse_quantity` reads the result back to `digits` significant digits.

    **Arguments:**

    - `value`: the number in `unit`.
    - `unit`: SI unit, one of `SI_UNITS`.
    - `digits`: significant digits.
    - `difference`: whether a temperature is a difference, which stays in K.

    **Returns:** number and unit.
    """
    value = float(value)
    if unit == "1":
        return _number(value, max(digits, 15 if value == round(value) else digits))
    if not math.isfinite(value):
        return f"{value} {unit}"
    if unit == "K" and not difference:
        return f"{_number(round(value - ZERO_CELSIUS, 9), digits)} °C"
    size = abs(value)
    for threshold, scale, name in _SCALES.get(unit, []):
        if size >= threshold and size > 0:
            return f"{_number(value / scale, digits)} {name}"
    if unit in _UNPREFIXED or unit == "K" or size == 0:
        return f"{_number(value, digits)} {unit}"
    rounded = float(f"{size:.{digits}g}")
    exponent = 3 * math.floor(math.log10(rounded) / 3 + 1e-12)
    if exponent not in _PREFIXES:
        return f"{_number(value, digits)} {unit}"
    mantissa = _number(value / 10.0**exponent, digits)
    if unit in _SEPARATED:
        plural = "s" if unit == "token" else ""
        if exponent < 0:
            return f"{_number(value, digits)} {unit}{plural}"
        return f"{mantissa} {_PREFIXES[exponent]} {unit}{plural}".replace("  ", " ")
    return f"{mantissa} {_PREFIXES[exponent]}{unit}"


def format_point_rate(rate: float) -> str:
    """Evaluated points per second [1/s] as text, in millions from a tenth of one."""
    return f"{rate / 1e6:.3g} million points/s" if rate >= 1e5 else f"{rate:.3g} points/s"
