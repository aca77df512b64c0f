"""Logs of power and energy, read as their writers mean them."""

import math
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.readers.lines import too_long
from energymodel.readers.log_records import PowerReading
from energymodel.readers.metered import Metered, by_device
from energymodel.readers.power_log import KINDS, Skipped, power_kind, power_of, read_power

NOON = 1714564800.0  # 2024-05-01 12:00:00 UTC


def read(tmp_path: Path, text: str | bytes, name: str = "log.csv", **options) -> list[PowerReading]:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(read_power(path, **options))


def of(readings, *names):
    """Fields of readings, as tuples if there are several."""
    rows = [tuple(getattr(reading, name) for name in names) for reading in readings]
    return rows if len(names) > 1 else [value for (value,) in rows]


def kind_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "log"
    path.write_text(text)
    return power_kind(path)


LOGS = yaml.safe_load(Path(__file__).with_name("power_logs.yaml").read_text())
SMI, DMON = LOGS["nvidia-smi with units"]["text"], LOGS["dcgmi dmon"]["text"]


@pytest.mark.parametrize("name", LOGS)
def test_a_log_gives_its_readings(tmp_path, name):
    log = LOGS[name]
    skipped = Skipped()
    readings = read(tmp_path, log["text"], skipped=skipped, **log.get("options", {}))
    assert sum(skipped.values()) == log.get("skipped", sum(skipped.values()))
    assert len(readings) == len(log["readings"])
    for reading, fields in zip(readings, log["readings"], strict=True):
        assert {field: getattr(reading, field) for field in fields} == pytest.approx(fields, nan_ok=True)
    assert kind_of(tmp_path, log["text"]) == log.get("kind", kind_of(tmp_path, log["text"]))


def test_nvidia_smi_without_units_gives_the_same(tmp_path):
    plain = SMI.replace(" W,", ",").replace(" MHz,", ",").replace(" %,", ",")
    assert [str(reading) for reading in read(tmp_path, plain)] == [str(reading) for reading in read(tmp_path, SMI)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_nvidia_smi_from_another_system(tmp_path, encoding, end):
    assert len(read(tmp_path, SMI.replace("\n", end).encode(encoding))) == 3


def interleaved(devices: int, samples: int, step: float = 0.1, row: float = 0.001) -> list[str]:
    lines = []
    for sample in range(samples):
        for device in range(devices):
            at = 1 + sample * step + device * row
            minute, second = divmod(at, 60)
            lines.append(f"2024/05/01 12:{int(minute):02d}:{second:06.3f}, {100 + device}.00 W")
    return lines


@pytest.mark.parametrize(
    ("devices", "samples", "cut"),
    [*((devices, 40, cut) for devices in (1, 2, 3, 8, 16) for cut in (0, 1)), (8, 1, 0), (8, 2, 0), (8, 3, 0)],
)
def test_interleaved_devices_are_told_by_their_place(tmp_path, devices, samples, cut):
    rows = interleaved(devices, samples)[cut * (devices - 1) :]
    readings = read(tmp_path, "\n".join(["timestamp, power.draw [W]", *rows]))
    assert len(readings) == len(rows)
    assert all(reading.power == 100 + int(reading.device) for reading in readings)


def test_interleaved_devices_with_a_pause_and_a_lost_row(tmp_path):
    rows = interleaved(8, 60)
    del rows[8 * 30 + 3]
    rows = rows[: 8 * 40] + interleaved(8, 20, step=0.5)[8:]
    skipped = Skipped()
    readings = read(tmp_path, "\n".join(["timestamp, power.draw [W]", *rows]), skipped=skipped)
    assert all(reading.power == 100 + int(reading.device) for reading in readings)
    assert sum(skipped.values()) == 8  # seven of the sample that lost a row, and the first row of one that was cut


def test_a_sample_that_is_held_up_within_is_whole(tmp_path):
    rows = interleaved(8, 40, step=0.2)
    held = [row.replace(":05.00", ":05.09") if 160 < count < 168 else row for count, row in enumerate(rows)]
    assert held != rows
    skipped = Skipped()
    readings = read(tmp_path, "\n".join(["timestamp, power.draw [W]", *held]), skipped=skipped)
    assert len(readings) == 320
    assert all(reading.power == 100 + int(reading.device) for reading in readings)
    assert not skipped


def test_rows_of_unknown_devices_are_refused(tmp_path):
    rows = [row for count, row in enumerate(interleaved(8, 40)) if (count * 2654435761) % 7 > 2]
    with pytest.raises(InputError, match="Add index"):
        read(tmp_path, "\n".join(["timestamp, power.draw [W]", *rows]))


def test_nvidia_smi_without_header_or_times_is_refused(tmp_path):
    with pytest.raises(InputError, match="Leave out noheader"):
        read(tmp_path, "2024/05/01 12:00:00.123, 0, 123.45 W\n")
    with pytest.raises(InputError, match="no column timestamp"):
        read(tmp_path, "index, power.draw [W]\n0, 123.45 W\n")


def scrape(power: str, energy: int, stamp: str = "") -> str:
    first = '{gpu="0",UUID="GPU-a",device="nvidia0",Hostname="n1"}'
    second = '{gpu="1",UUID="GPU-b",device="nvidia1",Hostname="n1"}'
    lines = [f"DCGM_FI_DEV_SM_CLOCK{first} 1980{stamp}", f"DCGM_FI_DEV_SM_CLOCK{second} 0{stamp}"]
    lines += [f"DCGM_FI_DEV_POWER_USAGE{first} {power}{stamp}", f"DCGM_FI_DEV_POWER_USAGE{second} 0{stamp}"]
    lines += [
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{first} {energy}{stamp}",
        f"DCGM_FI_DEV_MEMORY_TEMP{first} 0{stamp}",
    ]
    return "\n".join(["# HELP DCGM_FI_DEV_SM_CLOCK SM clock.", "# TYPE DCGM_FI_DEV_SM_CLOCK gauge", *lines, ""])


@pytest.mark.parametrize("line", ["Wed May  1 12:00:00 UTC 2024", "# 2024-05-01T12:00:00Z", "# scraped 1714564800"])
def test_dcgm_times_between_scrapes(tmp_path, line):
    readings = read(tmp_path, f"{line}\n{scrape('650', 1)}")
    assert of(readings, "time") == [NOON]


def test_dcgm_without_times_needs_an_interval(tmp_path):
    text = scrape("650", 1) + scrape("660", 2)
    assert all(math.isnan(reading.time) for reading in read(tmp_path, text))
    assert of(read(tmp_path, text, interval=15), "time") == [0.0, 15.0]
    with pytest.raises(InputError, match="positive"):
        read(tmp_path, text, interval=-1)


CARBON = "timestamp,project_name,run_id,duration,emissions,cpu_power,gpu_power,ram_power,cpu_energy,gpu_energy,ram_energy,energy_consumed,gpu_count,water_consumed"  # noqa: E501


def test_perf_without_intervals_is_refused(tmp_path):
    with pytest.raises(InputError, match="-I 1000"):
        read(tmp_path, "475.42,Joules,power/energy-pkg/,20005659301,100.00,,\n")


def test_a_table_without_units_is_refused(tmp_path):
    for text in ("time,power_draw\n0,100\n", "time,power_mw\n0,100\n", "power_w,other\n1,2\n"):
        with pytest.raises(InputError, match="power_w"):
            read(tmp_path, text, kind="table")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (scrape("1", 1), "dcgm"),
        ("start_time,window_name,elapsed_time,gpu0_energy\n", "zeus"),
        (CARBON, "codecarbon"),
        ("time,energy_uj\n0,1\n", "rapl"),
        ("time,power_w\n", "table"),
    ],
)
def test_the_kind_is_told_from_the_first_lines(tmp_path, text, kind):
    assert kind_of(tmp_path, text) == kind


def test_what_is_no_log_is_refused(tmp_path):
    dmon = "# gpu    pwr  gtemp     sm   pclk\n# Idx      W      C      %    MHz\n 0  300  55  99  1980\n"
    turbostat = "Time_Of_Day_Seconds\tCPU\tBusy%\tPkgWatt\n1750000000.5\t-\t60\t250.5\n"
    ipmitool = "  Instantaneous power reading:      2210 Watts\n  IPMI timestamp:      Sun Jun  1 12:00:00 2025\n"
    junk = ("", "\n\n", "step 1 loss 2.3\n", "Wall time,Step,Value\n1,2,3\n", "{}\n")
    for text in (*junk, dmon, turbostat, ipmitool):
        with pytest.raises(InputError, match="Known kinds: nvidia-smi, dcgm, codecarbon, zeus, rapl, table"):
            kind_of(tmp_path, text)
    with pytest.raises(InputError, match="Cannot read"):
        power_kind(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="Cannot read"):
        power_kind(tmp_path)
    with pytest.raises(InputError, match='Did you mean "zeus"'):
        read_power(tmp_path / "missing.csv", kind="zeuss")


def test_absurd_values_are_left_out(tmp_path):
    values = ["-5", "1e6", "1e400", "nan", "inf", "9" * 5000, "", "[N/A]", "100"]
    rows = "\n".join(f"2024/05/01 12:00:{second:02d}.000, 0, {value}" for second, value in enumerate(values))
    skipped = Skipped()
    readings = read(tmp_path, f"timestamp, index, power.draw [W]\n{rows}\n2024/05/01 12:0", skipped=skipped)
    assert of(readings, "power") == [100.0]
    assert sum(skipped.values()) == len(values)


def test_long_lines_and_junk_are_skipped_and_counted(tmp_path):
    head, *rows = SMI.encode().splitlines(keepends=True)
    junk = b"\x00\xff\xfe" * 50 + b"\n" + b"x" * (3 * 2**20) + b"\n"
    skipped = Skipped()
    readings = read(tmp_path, head + rows[0] + junk + b"".join(rows[1:]), skipped=skipped)
    assert len(readings) == 3
    assert skipped[too_long()] == 1


def test_readings_come_as_soon_as_their_lines():
    def growing():
        yield "time,power_w"
        yield "0,100"
        raise AssertionError("read ahead")

    readings = power_of(growing(), "table", "standard input")
    assert next(readings).power == 100.0
    with pytest.raises(InputError, match="no reading of kind table"):
        list(power_of(["time,power_w", "0,-1"], "table", "standard input"))


LINES = [line for text in (SMI, scrape("1", 2, " 3"), DMON, CARBON) for line in text.splitlines()] + [
    "start_time,window_name,elapsed_time,gpu0_energy", "1,w,1,1", "time,energy_uj", "1.0,19.5,Joules,power/energy-pkg/",
    "time,power_w", "0,1", "2024-05-01T12:00:10,p,a,10.0,1,50,300,5,0.0001,0.001,0.00001,0.00111,1,0.1",
]  # fmt: skip
junk = st.one_of(
    st.sampled_from(LINES),
    st.text(max_size=40),
    st.builds(
        lambda line, at, text: line[: at % (len(line) + 1)] + text + line[at % (len(line) + 1) :],
        st.sampled_from(LINES),
        st.integers(0, 200),
        st.sampled_from([",", '"', "\0", "{", "}", "9" * 5000, "-", "1e400", "nan", ";", "\t", "#", "[", "²", "٣"]),
    ),
)


@given(kind=st.sampled_from(KINDS), lines=st.lists(junk, max_size=12), interval=st.none() | st.floats())
def test_any_lines_end_in_readings_or_one_error(kind, lines, interval):
    try:
        readings = list(power_of(lines, kind, "junk", interval=interval))
    except InputError:
        return
    assert readings
    for reading in readings:
        assert not reading.power < 0
        assert not reading.energy < 0
        assert not math.isinf(reading.power + reading.energy + reading.time)
    for rows in by_device(readings).values():
        assert Metered(rows).energy([(0.0, 2e9)])[0] >= 0


@given(lines=st.lists(junk, max_size=12))
def test_any_file_is_told_or_refused(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    with suppress(InputError):
        assert power_kind(path) in KINDS
        list(read_power(path))
