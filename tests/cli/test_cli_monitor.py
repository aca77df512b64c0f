"""`monitor` from the command line: a recorded run, a run that is followed, and what cannot be."""

import json
import threading

import pytest

from cli.shell import assert_bad_input, run
from energymodel.readers.lines import LONGEST
from monitor.recorded_run import STEPS, changed, expected, readings_until, steps_until, write_log, write_meter
from report.page.read_page import assert_sound

PLAN = ("test-1b-h100", "--set", f"plan.goal.tokens={STEPS * 0.524288} M tokens")


@pytest.fixture
def files(tmp_path):
    """A log and readings of 30 % of a run that is slower than planned, on devices one of which is slow."""
    log, meter = tmp_path / "train.log", tmp_path / "gpu.csv"
    write_log(log, steps_until(0.3, slower=1.2))
    write_meter(meter, changed(readings_until(0.36), "3", clock=1.5e9))
    return str(log), str(meter)


def test_a_recorded_run_is_reported(tmp_path, files):
    log, meter = files
    output, metrics = tmp_path / "run.jsonl", tmp_path / "run.prom"
    options = ("--no-replan", "--every", "1", "-o", str(output), "--metrics", str(metrics))
    result = run("monitor", *PLAN, "--log", log, "--power", meter, *options)
    assert result.exit_code == 0, result.stderr
    assert "30.0 %, step 600" in result.stdout
    assert "straggler: Device 3 runs at 1.5 GHz" in result.stdout
    assert "20 % longer than planned" in result.stdout
    assert "at the end" in result.stdout
    assert "new plan" not in result.stdout
    last = json.loads(output.read_text().splitlines()[-1])
    assert last["forecast"]["time_s"]["value"] > 1.15 * float(expected().outcome.time)
    assert "energymodel_forecast_energy_joules" in metrics.read_text()


@pytest.mark.slow
def test_what_a_new_plan_saves_is_said_and_replan_reads_the_file(tmp_path, files):
    log, meter = files
    output = tmp_path / "run.jsonl"
    result = run("monitor", *PLAN, "--log", log, "--power", meter, "-o", str(output))
    assert result.exit_code == 0, result.stderr
    assert "Lowest-energy plan" in result.stdout
    answer = run("replan", *PLAN, "--so-far", str(output), "--json")
    assert answer.exit_code == 0, answer.stderr


@pytest.mark.slow
def test_json_lines_are_json_and_the_page_has_their_numbers(tmp_path, files):
    log, meter = files
    page, words = tmp_path / "run.html", ("--json", "--replay", "1e9", "--every", "0.15", "--no-replan")
    result = run("monitor", *PLAN, "--log", log, "--power", meter, *words, "-o", str(page))
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    read = assert_sound(page.read_text(encoding="utf-8"), data=False)
    assert lines[-1]["forecast"]["energy_j"]["value"] in read.numbers("energy")
    assert "What is wrong" in read.headings
    assert any("Device 3 runs at 1.5 GHz" in text for text in read.text)
    assert lines[-1]["progress"] == pytest.approx(0.3)
    assert {finding["kind"] for finding in lines[-1]["findings"]} >= {"straggler", "plan"}


def test_a_run_is_followed_to_its_end(tmp_path):
    log, complete = tmp_path / "train.log", tmp_path / "whole.log"
    write_log(complete, steps_until(1.0, every=50))

    def write():
        with log.open("w") as file:
            for line in complete.read_text().splitlines(keepends=True):
                file.write(line)
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    result = run("monitor", *PLAN, "--log", str(log), "--follow", "--every", "0.5")
    writer.join()
    assert result.exit_code == 0, result.stderr
    assert "100.0 %, step 2,000" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--log is missing"),
        (("--log", "LOG", "--follow", "--replay", "10"), "Leave out one of them"),
        (("--log", "LOG", "--replay", "0"), "--replay 0.0: no speed"),
        (("--log", "LOG", "--every", "2"), "every: 2.0"),
        (("--log", "LOG", "--power", "LOG"), "no log of power"),
        (("--log", "METER"), "no line is one of a training log"),
        (("--log", "nothing.log"), "nothing.log"),
        (("--log", "LOG", "-o", "run.toml"), "run.toml"),
        (("--log", "EMPTY"), "is empty"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, files, words, message):
    empty = tmp_path / "empty.log"
    empty.write_text("")
    named = {"LOG": files[0], "METER": files[1], "EMPTY": str(empty)}
    assert_bad_input(["monitor", *PLAN, *(named.get(word, word) for word in words)], message)


def test_a_line_without_end_is_no_danger(tmp_path):
    log = tmp_path / "long.log"
    write_log(log, steps_until(0.05))
    with log.open("a") as file:
        file.write("x" * (2 * LONGEST))
    result = run("monitor", *PLAN, "--log", str(log), "--no-replan", "--every", "1")
    assert result.exit_code == 0, result.stderr
