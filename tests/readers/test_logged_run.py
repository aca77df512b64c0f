"""Steps of training, and those that warm up, evaluate, write a checkpoint or follow a restart."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.readers.log_records import LoggedStep
from energymodel.readers.logged_run import batches, logged_run
from energymodel.readers.step_log import read_steps

MEGATRON = (
    " [2026-02-06 20:55:{second:02d}.500000] iteration {step:8d}/ 1000 | consumed samples: 9344 | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 478.0 | "
    "energy per GPU (J/iter/GPU): 1992.5 | power per GPU (W/GPU): 647.8 | learning rate: 9.5E-05 | "
    "global batch size: {batch} | lm loss: 2.401035E+00 | loss scale: 1.0 | grad norm: 1.797 |"
)


def write(folder: Path, *lines: str, name: str = "train.log") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_maxtext_steps_that_only_dispatch_are_warm_up(tmp_path):
    times = [0.8, 9.9, 5.01, 5.0, 4.99, 5.0, 5.02, 5.0]
    line = "completed step: {}, seconds: {}, TFLOP/s/device: 1.3, Tokens/s/device: 5.4, total_weights: 65536, loss: 2"
    run = logged_run(read_steps(write(tmp_path, *(line.format(at, time) for at, time in enumerate(times)))))
    assert Counter(run.phases) - Counter({"training": 99}) == {"warm-up": 2}
    assert np.median(run.column("step_time")) == 5.0
    assert np.median(run.column("tokens")) == 65536.0


def test_evaluations_checkpoints_and_restarts_are_told_apart(tmp_path):
    def line(step, second, ms=2000.0):
        return MEGATRON.format(second=second, step=step, ms=ms, batch=32)

    lines = [line(1, 2, 8000.0), line(2, 4), line(3, 6), "saving checkpoint at iteration 3 to x", line(4, 12, 6000.0)]
    lines += ["validation loss at iteration 4 | lm loss value: 2.2E+00 |", line(5, 14), line(6, 16), line(7, 18)]
    lines += ["loading checkpoint from x at iteration 5", line(6, 40, 9000.0), line(7, 42), line(8, 44), line(9, 46)]
    run = logged_run(read_steps(write(tmp_path, *lines)))
    left_out = {"warm-up": 1, "checkpoint": 1, "restart": 1, "lost": 2}
    assert Counter(run.phases) - Counter({"training": 99}) == left_out
    assert np.median(run.column("step_time")) == 2.0
    kinds = [segment.phase for segment in run.segments()]
    assert "checkpoint" in kinds
    assert kinds.count("restart") == 1
    total = run.segments()[-1].stop - run.segments()[0].start
    assert sum(segment.stop - segment.start for segment in run.segments()) == pytest.approx(total)


def test_a_batch_that_grows_is_two_groups(tmp_path):
    lines = [MEGATRON.format(second=at, step=at, ms=1000.0, batch=16 if at < 4 else 32) for at in range(1, 9)]
    sizes = batches(logged_run(read_steps(write(tmp_path, *lines))))
    assert [(size, len(indices)) for size, indices in sizes] == [(16.0, 3), (32.0, 5)]


def test_a_log_without_steps_is_refused():
    with pytest.raises(InputError, match="no training step is in it"):
        logged_run([])


def test_stamps_of_whole_seconds_leave_no_gaps():
    # Steps of 0.4 s, whose stamps say the second in which they ended.
    steps = [LoggedStep(at, time=1e9 + int(0.4 * at), step_time=0.4) for at in range(1, 101)]
    (span,) = logged_run(steps).segments()
    assert (span.phase, span.stop - span.start) == ("training", pytest.approx(40.4))
    late = [LoggedStep(at, time=1e9 + int(0.4 * at) + 30 * (at > 50), step_time=0.4) for at in range(1, 101)]
    assert [segment.phase for segment in logged_run(late).segments()] == ["training", "waiting", "training"]
