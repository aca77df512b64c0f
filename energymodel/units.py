"""What is "700 W" in SI, and how does a person read 2.2e-8 USD/J?

Quantities are converted once, at the edge of the program; inside there are only SI numbers. pint does the dimensional
analysis. Its units are defined here, because those that come with it have no tokens, FLOP or dollars, read "Gb" as
gilberts, and count 365.25 days a year; here a year has 365 days (8,760 h) and a month is a twelfth of it, as in capital
accounting (docs/physics.md B9). A number in its exact SI unit is read without importing pint.
"""

import difflib
import functools
import math
import re
import sys
from typing import Any

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError

_EXAMPLES = {
    "1": ("dimensionless number", "0.38"),
    "1/K": ("temperature coefficient", "0.015 1/K"),
    "1/K^2": ("curvature with temperature", "0.0068 1/K^2"),
    "1/s": ("rate", "3 1/s"),
    "1/m^2": ("density of defects", "0.1 1/cm^2"),
    "B": ("size of data", "80 GB"),
    "B/FLOP": ("ratio of data to computation", "0.016 B/FLOP"),
    "B/s": ("data rate", "450 GB/s"),
    "FLOP": ("amount of computation", "3.8e25 FLOP"),
    "FLOP/B": ("arithmetic intensity", "295 FLOP/B"),
    "FLOP/bit": ("ratio of computation to data", "8.7 FLOP/bit"),
    "FLOP/s": ("rate of computation", "989 TFLOP/s"),
    "Hz": ("frequency", "1.83 GHz"),
    "J": ("energy", "32 GWh"),
    "J s": ("energy-time product", "5.9e18 J s"),
    "J/FLOP": ("energy per operation", "0.45 pJ/FLOP"),
    "J/B": ("energy per byte", "0.1 pJ/B"),
    "J/K": ("heat capacity", "250 J/K"),
    "J/bit": ("energy per bit", "3.9 pJ/bit"),
    "J/kg": ("specific energy", "88 kJ/kg"),
    "J/token": ("energy per token", "6.4 J/token"),
    "K": ("temperature", "25 °C"),
    "K/W": ("thermal resistance", "0.06 K/W"),
    "K/s": ("temperature ramp", "5 K/s"),
    "N/m": ("surface tension", "0.0083 N/m"),
    "USD": ("sum of money", "30000 USD"),
    "USD/(W s)": ("price of power over time", "15 USD/(kW month)"),
    "USD/B": ("price of memory", "15 USD/GB"),
    "USD/J": ("price of energy", "0.08 USD/kWh"),
    "USD/W": ("price of power", "11 USD/W"),
    "USD/kg": ("price of carbon", "100 USD/t"),
    "USD/m^2": ("price of area", "0.2 USD/mm^2"),
    "USD/s": ("price of time", "2 USD/h"),
    "V": ("voltage", "48 V"),
    "W": ("power", "25 MW"),
    "W/B": ("power per data", "0.125 W/GB"),
    "W/s": ("power ramp", "10 MW/min"),
    "W/m^2": ("heat flux", "86 W/cm^2"),
    "bit": ("amount of information", "8.8e10 bit"),
    "bit/FLOP": ("number of bits per operation", "32 bit/FLOP"),
    "bit/token": ("information per token", "0.04 bit/token"),
    "kg": ("mass", "150 kg"),
    "kg/B": ("carbon per data", "0.3 kg/GB"),
    "kg/J": ("carbon intensity", "0.37 kg/kWh"),
    "kg/m^2": ("carbon per area", "2 kg/cm^2"),
    "kg/m^3": ("density", "1602 kg/m^3"),
    "m": ("length", "2 mm"),
    "m^2 s/B": ("area per data rate", "15 mm^2 s/TB"),
    "m^2": ("area", "814 mm^2"),
    "m^3": ("volume", "50000 m^3"),
    "nat": ("amount of information", "2 nat"),
    "nat/token": ("loss", "1.9 nat/token"),
    "ohm": ("resistance", "1 mohm"),
    "s": ("time", "60 days"),
    "token": ("number of tokens", "15.6 T tokens"),
    "token/J": ("tokens per energy", "0.16 token/J"),
    "token/s": ("token rate", "2.7e6 token/s"),
}
SI_UNITS = frozenset(_EXAMPLES)
"""The unit strings that the project's quantities use: a number with one of these is converted without pint."""

_REGISTRY = """
yocto- = 1e-24 = y-
zepto- = 1e-21 = z-
atto- = 1e-18 = a-
femto- = 1e-15 = f-
pico- = 1e-12 = p-
nano- = 1e-9 = n-
micro- = 1e-6 = µ- = μ- = u-
milli- = 1e-3 = m-
centi- = 1e-2 = c-
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
zetta- = 1e21 = Z-
yotta- = 1e24 = Y-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
pebi- = 1125899906842624 = Pi-
meter = [length] = m = metre
second = [time] = s
gram = [mass] = g
ampere = [current] = A
kelvin = [temperature] = K
bit = [information]
token = [token]
FLOP = [computation] = _ = flop
USD = [currency] = _ = dollar
chip = [] = _ = GPU = TPU = accelerator
percent = 0.01
minute = 60 * second = min
hour = 60 * minute = h
day = 24 * hour = d
week = 7 * day
year = 365 * day = yr
month = year / 12
tonne = 1000 * kilogram = t = ton
newton = kilogram * meter / second ** 2 = N
joule = newton * meter = J
watt = joule / second = W
watt_hour = watt * hour = Wh
hertz = 1 / second = Hz
volt = watt / ampere = V
ohm = volt / ampere = Ω
farad = ampere * second / volt = F
byte = 8 * bit = B
nat = bit / 0.6931471805599453
"""
_MAGNITUDES = {
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
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
    registry.load_definitions(_REGISTRY.strip().splitlines())
    return registry


def _describe(unit: str) -> tuple[str, str]:
    return _EXAMPLES.get(unit, (f"quantity in {unit}", f"1 {unit}"))


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _show(text: Any) -> str:
    shown = text if isinstance(text, str) else repr(text)
    shown = "".join(character if character.isprintable() else "?" for character in shown)
    return f'"{shown[:_LONGEST_TEXT]}…"' if len(shown) > _LONGEST_TEXT else f'"{shown}"'


def _nearest_unit(unit: str) -> str:
    words = [word for word in re.findall(r"[A-Za-zµμΩ]+", unit) if word not in _registry()]
    if not words:
        return ""
    # Only the last part of a compound needs correction as a rule: compare each unknown word with known ones.
    known = ["W", "kW", "MW", "GW", "kWh", "MWh", "GWh", "FLOP", "TFLOP", "PFLOP", "GB", "TB", "Gbit", "GHz", "MHz"]
    known += ["tokens", "token", "days", "day", "hours", "hour", "years", "month", "USD", "watt", "joule", "kg"]
    near = difflib.get_close_matches(words[0].lower(), [unit.lower() for unit in known], n=1, cutoff=0.6)
    return f' Did you mean "{next(unit for unit in known if unit.lower() == near[0])}"?' if near else ""


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
    given = f"{value:g} {unit}".strip()
    advice = f'write {_article(noun)} such as "{example}".'
    if not unit:
        raise InputError(f"{name}: {_show(given)} has no unit; {advice}")
    if unit in _CELSIUS and target == "K":
        return float(value) if difference else float(value) + ZERO_CELSIUS
    if not _UNIT.fullmatch(unit):
        raise InputError(f"{name}: cannot read the unit of {_show(given)}; {advice}")
    registry = _registry()
    import pint

    text = unit.replace("%", " percent").replace("$", "USD").replace("·", "*")
    text = re.sub(r"\b(chip|GPU|TPU)s?-hours?\b", r"(\1 * hour)", text)
    try:
        return float(registry.Quantity(float(value), registry.parse_units(text)).to(target if target != "1" else "").m)
    except pint.DimensionalityError:
        raise InputError(f"{name}: {_show(given)} is not {_article(noun)}; {advice}") from None
    except Exception as error:  # pint passes on errors of the tokenizer and of arithmetic
        hint = _nearest_unit(unit) if isinstance(error, pint.UndefinedUnitError) else ""
        raise InputError(f"{name}: unknown unit {_show(unit)} in {_show(given)}; {advice}{hint}") from None


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
        raise InputError(f"{name}: {_show(text)} is not a quantity; {advice}")
    match = _NUMBER.fullmatch(text if isinstance(text, str) else f"{text:.17g}" if abs(text) < _LARGEST else "inf")
    if match is None or len(match["unit"]) > _LONGEST_TEXT:
        raise InputError(f"{name}: cannot read {_show(text)}; {advice}")
    number = float(match["number"].replace(",", "").replace("_", ""))
    rest = " ".join(match["unit"].split())
    if not math.isfinite(number):
        raise InputError(f"{name}: {_show(text)} is not a finite number; {advice}")
    first, _, following = rest.partition(" ")
    if first in _MAGNITUDES:
        number, rest = number * _MAGNITUDES[first], following
    if not rest and unit != "1":
        raise InputError(f"{name}: {_show(text)} has no unit; {advice}")
    try:
        value = convert(number, rest or "1", unit, name, difference=difference)
    except InputError as error:
        # Say what was written, not what became of it after a prefix was taken out.
        raise InputError(str(error).replace(_show(f"{number:g} {rest}"), _show(text))) from None
    if not math.isfinite(value):
        raise InputError(f"{name}: {_show(text)} is not a finite number; {advice}")
    if value < 0 and not allow_negative:
        problem = "below absolute zero" if unit == "K" and not difference else "negative"
        raise InputError(f"{name}: {_show(text)} is {problem}; {advice}")
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
    "J": [(3.6e12, 3.6e12, "GWh"), (3.6e9, 3.6e9, "MWh"), (_KILOWATT_HOUR, _KILOWATT_HOUR, "kWh")],
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
