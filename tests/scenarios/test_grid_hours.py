"""Hours of a grid as a file has them, and what a file lacks."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.grid_hours import read_grid, region_hours
from energymodel.scenarios.scenario import load_scenario

HEADER = "hour,ci_direct_g_per_kwh,price_usd_per_mwh,temp_c,wet_bulb_c"


def present(series) -> np.ndarray:
    assert series is not None
    return series


def hourly(tmp_path, rows=None, header=HEADER, first=0):
    path = tmp_path / "grid.csv"
    rows = rows or [f"{first + hour},{100 + hour},{20 + hour},{hour % 24},{hour % 24 - 2}" for hour in range(48)]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def means(tmp_path, leave_out=None):
    rows = [
        f"{zone},{month},{hour},{10 * month + hour},{month}"
        for zone in ("A", "B")
        for month in range(1, 13)
        for hour in range(24)
        if (month, hour) != leave_out
    ]
    return hourly(tmp_path, rows, "zone,month,utc_hour,ci_direct_g_per_kwh,price_usd_per_mwh")


def test_units_of_hours(tmp_path):
    hours = read_grid(hourly(tmp_path))
    assert (hours.hours, hours.repeats, hours.first) == (48, False, 0)
    np.testing.assert_allclose(present(hours.carbon)[:2], [100e-3 / 3.6e6, 101e-3 / 3.6e6])
    np.testing.assert_allclose(present(hours.price)[:2], [20 / 3.6e9, 21 / 3.6e9])
    np.testing.assert_allclose([present(hours.dry_bulb)[1], present(hours.wet_bulb)[1]], [274.15, 272.15])
    assert hours.window(40, 20).hours == 8
    assert read_grid(hourly(tmp_path, first=740)).month.tolist() == [0] * 4 + [1] * 44


def test_means_make_a_year_that_goes_on_from_its_end(tmp_path):
    hours = read_grid(means(tmp_path), "B", needs=("price", "carbon"))
    assert (hours.hours, hours.repeats) == (8760, True)
    assert np.bincount(hours.month).tolist() == [24 * days for days in (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)]
    np.testing.assert_allclose(present(hours.carbon)[31 * 24 + 5], 25e-3 / 3.6e6)
    turn = hours.window(8750, 20)
    np.testing.assert_allclose(present(turn.price)[[0, -1]], [12 / 3.6e9, 1 / 3.6e9])
    assert turn.month.tolist() == [0] * 10 + [1] * 10


@pytest.mark.parametrize(
    ("text", "replaced", "message"),
    [
        ("7,107,27,7,5", "7,107,,7,5", r"line 9: price_usd_per_mwh is empty.*--minimize carbon_operational"),
        ("7,107,27,7,5", "7,nan,27,7,5", r"line 9, column .ci_direct_g_per_kwh.: nan is not finite"),
        ("7,107,27,7,5", "7,107,27,,5", r"line 9: temp_c is empty.*--weather scenario"),
        ("7,107,27,7,5", "8,107,27,7,5", r"line 9: hour 8 follows 6"),
        ("7,107,27,7,5", "7,-1,27,7,5", r"line 9, column .ci_direct_g_per_kwh.: -1 g/kWh cannot be"),
        ("7,107,27,7,5", "7,107,27,7,9", r"wet-bulb temperature is 2 K above the dry bulb"),
        ("7,107,27,7,5", "7,107,27,107,5", r"line 9, column .temp_c.: 380.15 K cannot be"),
        ("7,107,27,7,5", "7,107,27", r"line 9: 3 cells under 5 columns"),
        ("price_usd_per_mwh", "price", r"no column price_usd_per_mwh"),
        ("hour,", "clock,", r"no column of hours"),
    ],
)
def test_what_is_missing_is_refused_by_line_and_column(tmp_path, text, replaced, message):
    path = hourly(tmp_path)
    path.write_text(path.read_text().replace(text, replaced, 1))
    with pytest.raises(InputError, match=message):
        read_grid(path)


def test_what_nobody_needs_may_be_missing(tmp_path):
    path = hourly(tmp_path)
    path.write_text(path.read_text().replace("7,107,27,7,5", "7,107,,,5", 1))
    hours = read_grid(path, needs=("carbon",), weather=False)
    assert hours.price is None
    assert hours.dry_bulb is None
    assert "price_usd_per_mwh has empty rows" in hours.notes[0]


def test_zones_and_months_are_chosen_and_complete(tmp_path):
    with pytest.raises(InputError, match=r"2 zones\. Choose one with --zone: A, B"):
        read_grid(means(tmp_path))
    with pytest.raises(InputError, match='no zone "C"'):
        read_grid(means(tmp_path), "C")
    with pytest.raises(InputError, match="no row for month 2, hour 3"):
        read_grid(means(tmp_path, (2, 3)), "A")
    with pytest.raises(InputError, match="no column zone"):
        read_grid(hourly(tmp_path), "A")
    with pytest.raises(InputError, match="no such file"):
        read_grid(tmp_path / "none.csv")


def test_a_region_has_its_weather_alone():
    system = load_scenario("test-1b-h100").system
    hours = region_hours(system)
    weather = system.facility.cooling.weather
    assert hours.dry_bulb is not None
    np.testing.assert_allclose(np.mean(hours.dry_bulb), float(weather.dry_bulb), rtol=1e-12)
    assert np.ptp(present(hours.carbon)) == 0.0
    assert np.argmin(hours.dry_bulb) == 0


FIRST = datetime(2026, 3, 28, 20)  # clocks go forward in Europe five hours later


def utc(step: float) -> list[datetime]:
    return [FIRST + timedelta(hours=index * step) for index in range(round(32 / step))]


def local(step: float) -> list[datetime]:
    return [time + timedelta(hours=1 + (time >= datetime(2026, 3, 29, 1))) for time in utc(step)]


def spans(times, form, step):
    return [f"{time:{form}} - {time + timedelta(hours=step):{form}}" for time in times]


EUR, LB = 1.13, 453.59237
DOWNLOADS = {
    "ember": (
        "Country,ISO3 Code,Datetime (UTC),Datetime (Local),Price (EUR/MWhe)",
        [f"Germany,DEU,{a},{b},{{0}}" for a, b in zip(utc(1), local(1), strict=True)],
        (None, "price", EUR / 3.6e9, 20),
    ),
    "electricity maps": (
        "Datetime (UTC),Country,Zone id,Carbon intensity gCO₂eq/kWh (direct),Carbon intensity gCO₂eq/kWh (Life cycle)",
        [f"{time},Germany,DE,{{0}},500" for time in utc(1)],
        ("DE", "carbon", 1e-3 / 3.6e6, 20),
    ),
    "entso-e, local time": (
        '"MTU (CET/CEST)","Day-ahead Price [EUR/MWh]","Currency","BZN|DE-LU"',
        [f'"{span}","{{0}}","EUR",""' for span in spans(local(1), "%d.%m.%Y %H:%M", 1)],
        (None, "price", EUR / 3.6e9, 21),
    ),
    "entso-e, quarters, two auctions": (
        '"MTU (UTC)","Area","Sequence","Day-ahead Price (EUR/MWh)"',
        [
            f'"{span}","BZN|DE-LU","{sequence}","{price}"'
            for span in spans(utc(0.25), "%d/%m/%Y %H:%M:%S", 0.25)
            for sequence, price in (("Sequence 1", "{0}"), ("Sequence 2", "7"))
        ],
        (None, "price", EUR / 3.6e9, 20),
    ),
    "eia": (
        "BA,UTC time,Local time,CO2 Emissions Intensity for Consumed Electricity",
        [f"CISO,{time + timedelta(hours=1):%m/%d/%Y %I:%M:%S %p},x,{{0}}" for time in utc(1)],
        ("CISO", "carbon", LB * 1e-3 / 3.6e6, 20),
    ),
    "nord pool": (
        "Delivery Start (CET);Delivery End (CET);NO1 Price (EUR);SE3 Price (EUR)",
        [f"{time:%d.%m.%Y %H:%M:%S};;9,5;{{0}}" for time in local(1)],
        ("SE3", "price", EUR / 3.6e9, 21),
    ),
}


@pytest.mark.parametrize("kind", DOWNLOADS)
def test_downloads_are_read_as_they_are(tmp_path, kind):
    header, rows, (zone, name, factor, hour) = DOWNLOADS[kind]
    each = len(rows) // 32
    path = tmp_path / "grid.csv"
    path.write_text("\n".join([header, *(row.format(40 + index // each) for index, row in enumerate(rows))]), "utf-8")
    hours = read_grid(path, zone, needs=(name,))
    np.testing.assert_allclose(present(getattr(hours, name)), factor * np.arange(40, 72), rtol=1e-12)
    assert hours.first == 24 * (31 + 28 + 27) + hour
    assert hours.hours == 32
    assert bool(hours.month[0] == hours.month[-1])


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("when,what", "{0},1", r"no column of price or carbon. Wanted are hour.*Its columns are when, what"),
        ("price_usd_per_mwh,a", "1,{0}", r"no column of hours. Wanted are.*MTU \(UTC\)"),
        ("Datetime (UTC),Price (EUR/MWh)", "2026-01-01 0{1}:00,1", "follows"),
        ("Datetime (UTC),Price (EUR/MWh)", "new year,1", "is no time that is known"),
        ("MTU (UTC),NO1 (EUR),NO2 (EUR)", "2026-01-01 0{1}:00,1,1", "Choose one with --zone: NO1, NO2"),
    ],
)
def test_a_refusal_of_a_download_says_what_is_wanted(tmp_path, header, row, words):
    path = tmp_path / "grid.csv"
    path.write_text("\n".join([header, *(row.format(index, index % 7) for index in range(30))]))
    with pytest.raises(InputError, match=words):
        read_grid(path)
