"""Steps of a training log, each once, beside anything else in the file."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.step_log import KINDS, log_kind, read_steps, steps_of
from log_lines import NANOTRON, TEN, megatron, mlperf, only_steps, read, said, titan


def test_two_iterations_on_one_line_and_one_cut_short() -> None:
    line = megatron(1, s=1) + megatron(2, s=4) + megatron(3, s=7)[:100]
    assert [(step.step, step.time) for step in only_steps(read(line))] == [(1, TEN + 1.5), (2, TEN + 4.5)]


def test_junk_between_lines_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "slurm-1.out"
    path.write_bytes(
        b"\xff\xfe\x80"[1:] + b"junk\r\n" + b"\0" * 3_000_000 + megatron(1, s=1).encode() + b"\r\n"
        + b"x" * 1_100_000 + b"\n" + megatron(2, s=4, loss="nan").encode() + b"\n"
        + f" iteration {'9' * 5000}/ 10 | elapsed time per iteration (ms): 1.0 |\n".encode()
        + f" iteration 3/ 10 | elapsed time per iteration (ms): {'9' * 5000} | lm loss: inf |\n".encode()
        + megatron(4, s=7).encode()[:120]
    )  # fmt: skip
    log = read_steps(path)
    steps = only_steps(list(log))
    assert [step.step for step in steps] == [1, 2, 3]
    assert math.isnan(steps[1].loss)
    assert steps[2].loss == math.inf
    assert math.isnan(steps[2].step_time)
    assert log.left_out == {"lines of more than 1048576 characters": 1}


def test_line_ends_and_texts_of_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = "".join(megatron(i, s=i % 60) + end for i, end in enumerate(["\n", "\r\n", "\r"] * 200, 1))
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_bytes(text.encode(encoding))
        assert [step.step for step in only_steps(list(read_steps(path)))] == list(range(1, 601))


def test_a_rank_that_is_late_and_a_run_that_begins_again_differ() -> None:
    def run(*steps: tuple[int, float | str]) -> list[int | str]:
        lines = [f"completed step: {step}, seconds: 1.0, loss: {loss}" for step, loss in steps]
        return [r.kind if isinstance(r, LogEvent) else r.step for r in read(*lines)]

    assert run((1, 2.5), (2, 2.4), (1, 2.5), (3, 2.3), (2, 2.4)) == [1, 2, 3]
    assert run((1, 2.5), (2, 2.4), (3, 2.3), (2, 2.45), (3, 2.35)) == [1, 2, 3, "restart", 2, 3]
    again = [titan(10, 0), titan(20, 10), titan(10, 50), titan(20, 59)]
    assert [r.kind if isinstance(r, LogEvent) else r.step for r in read(*again)] == [10, 20, "restart", 10, 20]


def test_integers_of_5000_digits_are_infinite_and_not_said(tmp_path: Path) -> None:
    huge = "9" * 5000
    path = tmp_path / "trainer_state.json"
    entries = f'{{"step": 1, "loss": 2.5, "num_tokens": {huge}}}, {{"step": {huge}, "loss": 1}}'
    path.write_text(f'{{"log_history": [{entries}]}}')
    assert [said(record) for record in read_steps(path)] == [{"step": 1, "loss": 2.5}]
    lines = [mlperf(0, "global_batch_size", 8), mlperf(0, "run_start"), mlperf(8, "block_stop", samples=32)]
    assert [step.step for step in only_steps(read(*lines, f':::MLLOG {{"key": "a", "time_ms": {huge}}}'))] == [4]


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = "completed step: 1, seconds: 2.828, TFLOP/s/device: 157.376, loss: 2659.990"
    path.write_text(f"{line}\n{line.replace('step: 1', 'step: 2')[:-6]}")
    log = read_steps(path)
    assert [step.step for step in only_steps(list(log))] == [1]
    assert log.left_out == {"half-written last lines": 1}
    path.write_text(f"{line}\n{line.replace('step: 1', 'step: 2')}")
    assert len(list(read_steps(path))) == 2


def test_lines_that_come_one_by_one_give_records_at_once() -> None:
    asked = []

    def growing() -> Iterator[str]:
        for i in range(1, 4):
            asked.append(i)
            yield titan(i, i) + "\n"

    log = steps_of(growing(), None, "growing")
    first = next(log)
    assert isinstance(first, LoggedStep)
    assert (first.step, asked) == (1, [1])
    log = steps_of([titan(1, 1), "x" * 1_100_000, titan(2, 2)], None, "growing")
    assert len(list(log)) == 2
    assert log.left_out == {"lines of more than 1048576 characters": 1}


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        log_kind(tmp_path / "missing")
    with pytest.raises(InputError, match="is a directory"):
        read_steps(tmp_path)
    path = tmp_path / "other.txt"
    path.write_text("hello\nworld\n")
    with pytest.raises(InputError, match="megatron, nemo, torchtitan, maxtext, nanotron, hf-trainer, mlperf"):
        log_kind(path)
    with pytest.raises(InputError, match=r'unknown kind of log "megatorn". Did you mean "megatron"'):
        read_steps(path, "megatorn")
    with pytest.raises(InputError, match="No step in"):
        list(read_steps(path, "megatron"))
    path.write_text("")
    with pytest.raises(InputError, match="is empty"):
        read_steps(path)
    path.write_text('{"log_history": [{"step": 1')
    with pytest.raises(InputError, match="no valid JSON"):
        list(read_steps(path))


PARTS = st.one_of(
    st.sampled_from(
        [megatron(5), titan(5, 5), NANOTRON.format(t="03/01/2025 10:00:02", i=3, c="3", b="2"), "Step,a - loss",
         "completed step: 1, seconds: 2.8, loss: 2.0", "{'loss': 1.5}", ":::MLLOG {", mlperf(1, "global_batch_size", 8),
         mlperf(2, "block_stop", samples=8), '{"log_history": [', "Wall time,Step,Value", "1.5,2,3", "1,2",
         "{'eval_loss': ",
         " 10%|#| 1/9 [00:01<00:05, 1.0s/it]", "saving checkpoint at iteration 5", "validation loss at iteration 5 | "]
    ),
    st.text(max_size=20),
    st.sampled_from(["\n", "\r", "|", ":", "nan", "-1", "1e400", "9" * 5000, ",", "}", "]", '"', "\x1b[", "/0 |"]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(PARTS, max_size=12), kind=st.sampled_from([None, *KINDS]), cut=st.integers(0, 300))
def test_junk_gives_records_or_one_line(parts: list[str], kind: str | None, cut: int) -> None:
    text = "".join(parts)[cut // 3 :]
    records: list[LoggedStep | LogEvent] = []
    with contextlib.suppress(InputError):
        records.extend(steps_of(text.splitlines(), kind, "junk"))
    for step in only_steps(records):
        assert not step.step_time <= 0
        assert not math.isinf(step.time)
