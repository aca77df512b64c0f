"""Order and pace of records, and files that grow."""

# pyright: reportAttributeAccessIssue=false

import math
import threading

import pytest

from energymodel.errors import InputError
from energymodel.monitor.sources import UNKNOWN, followed, recorded, replayed
from energymodel.readers.log_records import LoggedStep, PowerReading
from monitor.recorded_run import readings_until, steps_until, write_log, write_meter


def test_records_of_all_files_are_in_order(tmp_path):
    log, meter = tmp_path / "train.log", tmp_path / "gpu.csv"
    write_log(log, steps_until(0.05))
    write_meter(meter, readings_until(0.05))
    seen = list(recorded([log], [meter]))
    times = [step.time for step in seen]
    assert times == sorted(times)
    assert sum(isinstance(step, LoggedStep) for step in seen) == len(steps_until(0.05))
    assert sum(isinstance(step, PowerReading) for step in seen) == len(readings_until(0.05))


def test_a_replay_keeps_the_pace():
    waits = []
    steps = [LoggedStep(1, time=0.0), LoggedStep(2, time=10.0), LoggedStep(3, time=10.0), LoggedStep(4, time=40.0)]
    assert list(replayed(steps, 1000.0, waits.append)) == steps
    assert waits == [0.01, 0.03]


def test_a_replay_without_times_takes_those_of_the_steps():
    waits = []
    steps = [LoggedStep(step, step_time=2.0) for step in range(1, 4)]
    assert list(replayed(steps, 10.0, waits.append)) == steps
    assert waits == [0.2, 0.2]


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, math.inf])
def test_a_speed_that_is_none_is_refused(speed):
    with pytest.raises(InputError, match="replay"):
        list(replayed([], speed))


def follow(logs, powers, until):
    """Records of files that are followed, until those so far say so."""
    stop, seen = threading.Event(), []
    for record in followed(logs, powers, stop, poll=0.01):
        seen.append(record)
        if until(seen):
            stop.set()
    return seen


def numbers(steps):
    return [step.step for step in steps]


def test_a_file_is_followed_as_it_is_written(tmp_path):
    log, source = tmp_path / "train.log", tmp_path / "source.log"
    write_log(source, steps_until(0.05))
    lines = source.read_text().splitlines(keepends=True)

    def write():  # line by line, one of them in two pieces
        with log.open("w") as file:
            for line in lines:
                for piece in (line[:40], line[40:]):
                    file.write(piece)
                    file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    seen = follow([log], [], lambda seen: len(seen) == len(lines))
    writer.join()
    assert numbers(seen) == numbers(steps_until(0.05))


def test_a_file_that_is_replaced_is_read_from_its_start(tmp_path):
    log, count, last = tmp_path / "train.log", len(steps_until(0.05)), steps_until(0.1)[-1]
    write_log(log, steps_until(0.05))

    def until(seen):
        if len(seen) == count:
            write_log(log, [last])
        return len(seen) > count

    assert follow([log], [], until)[-1].step == last.step


def test_another_file_of_the_name_is_read_from_its_start(tmp_path):
    log, new = tmp_path / "train.log", tmp_path / "new.log"
    write_log(log, steps_until(0.05))
    write_log(new, steps_until(0.1))  # longer than what was read

    def until(seen):
        if len(seen) == len(steps_until(0.05)):
            new.replace(log)
        return seen[-1].step == steps_until(0.1)[-1].step

    assert numbers(follow([log], [], until)) == numbers(steps_until(0.1))  # those that were there once only


def test_what_was_written_before_comes_in_the_order_of_its_times(tmp_path):
    log, meter = tmp_path / "train.log", tmp_path / "gpu.csv"
    write_log(log, steps_until(0.05))
    write_meter(meter, readings_until(0.05))
    count = len(steps_until(0.05)) + len(readings_until(0.05))
    seen = follow([log], [meter, tmp_path / "late.csv"], lambda seen: len(seen) == count)
    times = [record.time for record in seen]
    assert times == sorted(times)


def test_a_long_file_of_no_known_kind_ends_the_watch(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("nonsense\n" * (UNKNOWN // 8))
    with pytest.raises(InputError, match="train"):
        list(followed([log], [], threading.Event(), poll=0.01))
