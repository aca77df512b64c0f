"""Units at the edge: what is read, what is refused and how, and that writing and reading are inverse."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.units import SI_UNITS, convert, format_point_rate, format_quantity, parse_quantity

# The expected numbers are arithmetic by hand; 1 kWh = 3.6e6 J, 1 month = 730 h, 1 year = 8760 h.
READ = [
    ("700 W", "W", 700.0),
    ("25 MW", "W", 25e6),
    ("25MW", "W", 25e6),
    ("1_000 W", "W", 1000.0),
    ("16,384 chips", "1", 16384.0),
    ("15.6 T tokens", "token", 15.6e12),
    ("15.6 trillion tokens", "token", 15.6e12),
    ("15.6e12 tokens", "token", 15.6e12),
    ("16 Mi tokens", "token", 16 * 2.0**20),
    ("16 Mtokens", "token", 16e6),
    ("20 B tokens", "token", 20e9),
    ("3bn USD", "USD", 3e9),
    ("0.08 USD/kWh", "USD/J", 0.08 / 3.6e6),
    ("0.08 $/kWh", "USD/J", 0.08 / 3.6e6),
    ("2 USD/chip-hour", "USD/s", 2 / 3600),
    ("2 USD/(GPU hour)", "USD/s", 2 / 3600),
    ("15 USD/(kW month)", "USD/(W s)", 15 / (1000 * 730 * 3600)),
    ("11 USD/W", "USD/W", 11.0),
    ("3 billion USD", "USD", 3e9),
    ("60 days", "s", 60 * 86400),
    ("4 years", "s", 4 * 8760 * 3600),
    ("5 µs", "s", 5e-6),
    ("5 us", "s", 5e-6),
    ("25 °C", "K", 298.15),
    ("25 degC", "K", 298.15),
    ("298.15 K", "K", 298.15),
    ("-10 °C", "K", 263.15),
    ("38 %", "1", 0.38),
    ("38%", "1", 0.38),
    ("0.38", "1", 0.38),
    ("1", "1", 1.0),
    (1, "1", 1.0),
    (0.25, "1", 0.25),
    ("16 Ki", "1", 16384.0),
    ("0.45 pJ/FLOP", "J/FLOP", 0.45e-12),
    ("3.9 pJ/bit", "J/bit", 3.9e-12),
    ("80 GB", "B", 80e9),
    ("80 GiB", "B", 80 * 2.0**30),
    ("450 GB/s", "B/s", 450e9),
    ("50 Gbit/s", "B/s", 6.25e9),
    ("989 TFLOP/s", "FLOP/s", 989e12),
    ("3.8e25 FLOP", "FLOP", 3.8e25),
    ("0.369 kg/kWh", "kg/J", 0.369 / 3.6e6),
    ("8930 t", "kg", 8.93e6),
    ("814 mm^2", "m^2", 814e-6),
    ("814 mm²", "m^2", 814e-6),
    ("86 W/cm^2", "W/m^2", 86e4),
    ("1 mohm", "ohm", 1e-3),
    ("2 bit/token", "nat/token", 2 * math.log(2)),
    ("0.015 1/K", "1/K", 0.015),
]

REFUSED = [
    ("700 GB", "W", ['"700 GB"', "not a power", '"25 MW"']),
    ("3.9 pJ", "J/bit", ["not an energy per bit"]),
    ("400 W", "1", ["not a dimensionless number"]),
    ("25", "W", ["no unit", '"25 MW"']),
    (25, "W", ['"25" has no unit']),
    (15.6e12, "token", ["no unit", "tokens"]),
    ("15.6 T", "token", ['"15.6 T" has no unit']),
    ("nan W", "W", ["not a finite number"]),
    (math.nan, "1", ["not a finite number"]),
    (math.inf, "1", ["not a finite number"]),
    ("inf W", "W", ["not a finite number"]),
    ("-Infinity W", "W", ["not a finite number"]),
    ("1e400 W", "W", ["not a finite number"]),
    ("1e308 GW", "W", ["not a finite number"]),
    pytest.param(10**400, "1", ["not a finite number"], id="10**400"),
    ("-5 W", "W", ['"-5 W" is negative']),
    (-1, "1", ["negative"]),
    ("-300 °C", "K", ["below absolute zero"]),
    ("", "W", ["cannot read"]),
    ("   ", "W", ["cannot read"]),
    ("abc", "W", ["cannot read"]),
    ("W 700", "W", ["cannot read"]),
    ("twenty MW", "W", ["cannot read"]),
    ("700 Wat", "W", ["unknown unit", 'Did you mean "watt"']),
    ("60 dys", "s", ["unknown unit", "Did you mean"]),
    ("5 T tokns", "token", ["unknown unit", 'Did you mean "tokens"']),
    ("400 Gb/s", "B/s", ["unknown unit"]),
    ("25 °C/s", "K/s", ["unknown unit"]),
    ("3 W)", "W", ["unknown unit"]),
    ("3 W**W", "W", ["unknown unit"]),
    ("3 W^99999999", "W", ["not a power"]),
    ("3 1000 W", "W", ["unknown unit"]),
    ("3 __import__('os')", "W", ["cannot read"]),
    ("3 " + "(" * 1000, "W", ["cannot read"]),
    ("700\nW\nand more", "W", ["700"]),
    (True, "1", ["not a quantity"]),
    (None, "W", ["not a quantity"]),
    ([700], "W", ["not a quantity"]),
    ({"value": 1}, "W", ["not a quantity"]),
]


@pytest.mark.parametrize(("text", "unit", "expected"), READ)
def test_quantity_is_read(text, unit, expected):
    assert parse_quantity(text, unit, "thing") == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("text", "unit", "parts"), REFUSED)
def test_bad_quantity_is_refused_in_one_line_that_names_it(text, unit, parts):
    with pytest.raises(InputError) as caught:
        parse_quantity(text, unit, "system.facility.power_limit")
    message = str(caught.value)
    assert message.startswith("system.facility.power_limit: ")
    assert "\n" not in message
    assert "write" in message
    assert len(message) < 300
    for part in parts:
        assert part in message


def test_options_of_reading_and_converting():
    assert parse_quantity("-5 W", "W", "thing", allow_negative=True) == -5.0
    assert parse_quantity("5 °C", "K", "approach", difference=True) == 5.0
    assert format_quantity(5.0, "K", difference=True) == "5 K"
    assert convert(25.0, "MW", "W", "thing") == 25e6
    with pytest.raises(InputError, match="no unit"):
        convert(25.0, "", "W", "thing")


# By hand: 1.15e14 / 3.6e12 = 31.94; 5.78e6 / 86400 = 66.90; 2.2e-8 * 3.6e6 = 0.0792.
WRITTEN = [
    (25e6, "W", "25 MW"),
    (0.0, "W", "0 W"),
    (-5.0, "W", "-5 W"),
    (999.96, "W", "1 kW"),
    (1.15e14, "J", "31.94 GWh"),
    (1e5, "J", "100 kJ"),
    (2.871e-21, "J", "2.871e-21 J"),
    (5.78e6, "s", "66.9 days"),
    (5e-6, "s", "5 µs"),
    (298.15, "K", "25 °C"),
    (2.2e-8, "USD/J", "0.0792 USD/kWh"),
    (15.6e12, "token", "15.6 T tokens"),
    (3.8e25, "FLOP", "3.8e25 FLOP"),
    (16384.0, "1", "16384"),
    (0.38123, "1", "0.3812"),
    (814e-6, "m^2", "814 mm^2"),
    (8.93e6, "kg", "8930 t"),
    (5.5555556e-4, "USD/s", "2 USD/h"),
    (0.06, "K/W", "0.06 K/W"),
]


@pytest.mark.parametrize(("value", "unit", "expected"), WRITTEN)
def test_quantity_is_written_for_people(value, unit, expected):
    assert format_quantity(value, unit) == expected


@given(unit=st.sampled_from(sorted(SI_UNITS)), exponent=st.floats(-20, 26))
@settings(max_examples=300, deadline=None)
def test_writing_and_reading_are_inverse(unit, exponent):
    value = 10.0**exponent
    read = parse_quantity(format_quantity(value, unit, digits=6), unit, "thing")
    shift = 273.15 if unit == "K" else 0.0  # six digits of the temperature in °C
    assert abs(read - value) <= 1e-5 * abs(value - shift) + 1e-9 * shift


def assert_read_or_refused(text, unit):
    message = ""
    try:
        assert math.isfinite(parse_quantity(text, unit, "thing"))
    except InputError as error:
        message = str(error)
    assert "\n" not in message


@given(text=st.text(max_size=40), unit=st.sampled_from(sorted(SI_UNITS)))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text, unit):
    assert_read_or_refused(text, unit)


@given(text=st.from_regex(r"[0-9.e+-]{1,8} ?[kMGT]? ?[A-Za-z%/*^() .0-9]{0,12}", fullmatch=True))
@settings(max_examples=300, deadline=None)
def test_any_number_with_any_unit_is_read_or_refused(text):
    assert_read_or_refused(text, "W")


@pytest.mark.parametrize(
    ("rate", "text"), [(0.668, "0.668 points/s"), (8.8e7, "88 million points/s"), (0.0, "0 points/s")]
)
def test_slow_sweeps_have_a_rate_that_can_be_read(rate, text):
    assert format_point_rate(rate) == text
