"""Are the steps of training logs those that the lines state, in every format, and is junk survived?"""

import contextlib
import json
import math
import os
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logged_run import batches, logged_run
from energymodel.readers.logs.exported import meaning
from energymodel.readers.step_log import KINDS, log_kind, read_scalars, read_steps, steps_of

MEGATRON = (
    " [2026-02-06 20:55:{second:02d}.500000] iteration {step:8d}/ 1000 | consumed samples: 9344 | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 478.0 | "
    "energy per GPU (J/iter/GPU): 1992.5 | power per GPU (W/GPU): 647.8 | learning rate: 9.5E-05 | "
    "global batch size: {batch} | lm loss: 2.401035E+00 | loss scale: 1.0 | grad norm: 1.797 |"
)
TITAN = (
    "[rank{rank}]:[titan] 2026-02-24 19:46:{second:02d},508 - root - INFO - \x1b[31mstep: {step:2d}  "
    "\x1b[32mloss:  7.62585  \x1b[38;2;180;60;0mgrad_norm: 26.6250  memory: 66.91GiB(37.51%)  "
    "\x1b[34mtps: 10,050  tflops: 314.71  mfu: 13.99%\x1b[39m"
)


def write(folder: Path, *lines: str, name: str = "train.log") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def steps(path, kind=None):
    return [one for one in read_steps(path, kind) if isinstance(one, LoggedStep)]


def test_megatron(tmp_path):
    path = write(
        tmp_path, "arguments ...", *(MEGATRON.format(second=at, step=at, ms=3000.0 + at, batch=32) for at in (1, 4, 7))
    )
    assert log_kind(path) == "megatron"
    first, *_ = found = steps(path)
    assert [one.step for one in found] == [1, 4, 7]
    assert first.step_time == pytest.approx(3.001)
    assert (first.sequences, first.loss, first.energy, first.power) == (32.0, 2.401035, 1992.5, 647.8)
    assert first.flops_rate == pytest.approx(478e12)
    assert found[1].time - first.time == pytest.approx(3.0)


def test_old_megatron_has_no_dates(tmp_path):
    line = "0: iteration 100/ 500 | consumed tokens: 1,048,576 | elapsed time per iteration (s): 2.5 | "
    path = write(tmp_path, line + "learning rate: 1e-4 | global batch size: 512 | lm loss: nan | TFLOPs: 41.2 |")
    (found,) = steps(path)
    assert found.step_time == 2.5
    assert found.tokens_so_far == 1048576.0
    assert math.isnan(found.loss)
    assert math.isnan(found.time)


def test_torchtitan_counts_a_step_of_several_ranks_once(tmp_path):
    order = [(0, 4), (1, 4), (0, 5), (2, 4), (1, 5), (2, 5), (0, 6)]
    path = write(tmp_path, *(TITAN.format(rank=rank, step=step, second=2 * step) for rank, step in order))
    found = steps(path)
    assert [one.step for one in found] == [4, 5, 6]
    assert found[0].token_rate == 10050.0
    assert found[0].memory == pytest.approx(66.91 * 2**30)
    run = logged_run(read_steps(path))
    np.testing.assert_allclose(run.columns["step_time"][1:], 2.0)


def test_maxtext_steps_that_only_dispatch_are_warm_up(tmp_path):
    times = [0.8, 9.9, 5.01, 5.0, 4.99, 5.0, 5.02, 5.0]
    line = "completed step: {}, seconds: {}, TFLOP/s/device: 1.3, Tokens/s/device: 5.4, total_weights: 65536, loss: 2"
    run = logged_run(read_steps(write(tmp_path, *(line.format(at, time) for at, time in enumerate(times)))))
    assert run.left_out() == {"warm-up": 2}
    assert run.median("step_time") == 5.0
    assert run.median("tokens") == 65536.0


def test_nanotron_numbers_are_shortened(tmp_path):
    path = write(
        tmp_path,
        "07/02/2024 12:00:01 [INFO|DP=0|PP=0|TP=0|ip-1]: iteration: 10 / 100 | consumed_tokens: 1.2M | "
        "elapsed_time_per_iteration_ms: 1.25K | tokens_per_sec: 3.4M | tokens_per_sec_per_gpu: 42.5K | "
        "global_batch_size: 2.1M | lm_loss: 8.1 | lr: 0.0003 | model_tflops_per_gpu: 180 | "
        "hardware_tflops_per_gpu: 190 | grad_norm: 2.5",
    )
    (found,) = steps(path)
    assert (found.step_time, found.token_rate, found.tokens) == (1.25, 42500.0, 2.1e6)
    assert found.flops_rate == 180e12
    assert found.time == 1719921601.0


def test_hf_trainer_state_and_printed_dictionaries(tmp_path):
    entries = [{"loss": 2.0 - 0.1 * at, "grad_norm": 1.0, "learning_rate": 1e-4, "step": 10 * at} for at in (1, 2, 3)]
    state = {"global_step": 30, "log_history": [*entries, {"eval_loss": 1.9, "eval_runtime": 4.0, "step": 30}]}
    path = write(tmp_path, json.dumps(state, indent=2), name="trainer_state.json")
    assert log_kind(path) == "hf-trainer"
    found = list(read_steps(path))
    assert [one.step for one in found if isinstance(one, LoggedStep)] == [10, 20, 30]
    assert found[-1] == LogEvent("evaluation", found[-1].time, 4.0, 1.9) or math.isnan(found[-1].time)
    printed = write(
        tmp_path,
        " 10%|#         | 1/10 [00:01<00:09]",
        "{'loss': 2.5, 'grad_norm': '1.1', 'learning_rate': 2e-05, 'epoch': 0.1}",
        "{'loss': nan, 'grad_norm': 1.0, 'learning_rate': 2e-05, 'epoch': 0.2}",
        "{'train_runtime': 12.0, 'train_loss': 2.0}",
    )
    assert steps(printed)[0].loss == 2.5
    assert steps(printed)[0].grad_norm == 1.1


def test_printed_text_is_not_run(tmp_path):
    path = write(tmp_path, "{'loss': __import__('os').system('true')}", "{'loss': 1.0}")
    assert [one.loss for one in steps(path, "hf-trainer")] == [1.0]


def mllog(key, time, value=None, **metadata):
    return f":::MLLOG {json.dumps({'time_ms': time, 'key': key, 'value': value, 'metadata': metadata})} tail"


def test_mlperf_blocks_between_evaluations(tmp_path):
    lines = [mllog("global_batch_size", 0, 8), mllog("run_start", 1000), mllog("block_start", 1000, samples_count=0)]
    lines += [mllog("block_stop", 11000, samples_count=80), mllog("eval_start", 11000), mllog("eval_stop", 13000)]
    lines += [mllog("block_start", 13000, samples_count=80), "prefix " + mllog("block_stop", 22000, samples_count=160)]
    found = list(read_steps(write(tmp_path, *lines)))
    times = [one.step_time for one in found if isinstance(one, LoggedStep)]
    assert times == [1.0, 0.9]
    assert [one.step for one in found if isinstance(one, LoggedStep)] == [10, 20]
    assert [one.duration for one in found if isinstance(one, LogEvent) and one.kind == "evaluation"] == [2.0]


def test_scalars_of_tensorboard_are_joined(tmp_path):
    names = {"run_train_loss.csv": [2.0, 1.9], "run_tps.csv": [1000.0, 1010.0]}
    paths = []
    for name, values in names.items():
        rows = [f"{1698314503.5 + 2 * at},{at},{value}" for at, value in enumerate(values)]
        paths.append(write(tmp_path, "Wall time,Step,Value", *rows, name=name))
    found = list(read_scalars(paths))
    assert [(one.step, one.loss, one.token_rate) for one in found] == [(0, 2.0, 1000.0), (1, 1.9, 1010.0)]
    assert logged_run(found).columns["step_time"][1] == 2.0
    with pytest.raises(InputError, match="scalar of an evaluation"):
        list(read_steps(write(tmp_path, "Wall time,Step,Value", "1698314503,1,2", name="eval_loss.csv")))


def test_columns_of_weights_and_biases(tmp_path):
    header = '"Step","run-1 - train/loss","run-1 - train/loss__MIN","run-1 - train/loss__MAX","run-1 - iteration-time"'
    path = write(tmp_path, header, '"1","2.5","2.4","2.6","3.5"', '"2","","","",""', name="wandb.csv")
    (found,) = steps(path)
    assert (found.loss, found.step_time) == (2.5, 3.5)
    history = write(tmp_path, "_step,_timestamp,train/loss,eval/loss", "5,1698314503.5,1.5,9", name="history.csv")
    (found,) = steps(history)
    assert (found.step, found.time, found.loss) == (5, 1698314503.5, 1.5)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("train/loss", "loss"),
        ("lm loss", "loss"),
        ("iteration-time", "step_time"),
        ("throughput/device/tokens_per_sec", None),
        ("tokens_per_sec_per_gpu", "token_rate"),
        ("validation loss", None),
        ("load_balancing_loss", None),
        ("loss-scale", None),
        ("learning-rate", "learning_rate"),
    ],
)
def test_names_of_scalars(name, field):
    found = meaning(name)
    assert (found[0] if found else None) == field


def test_evaluations_checkpoints_and_restarts_are_told_apart(tmp_path):
    def line(step, second, ms=2000.0):
        return MEGATRON.format(second=second, step=step, ms=ms, batch=32)

    lines = [line(1, 2, 8000.0), line(2, 4), line(3, 6), "saving checkpoint at iteration 3 to x", line(4, 12, 6000.0)]
    lines += ["validation loss at iteration 4 | lm loss value: 2.2E+00 |", line(5, 14), line(6, 16), line(7, 18)]
    lines += ["loading checkpoint from x at iteration 5", line(6, 40, 9000.0), line(7, 42), line(8, 44), line(9, 46)]
    run = logged_run(read_steps(write(tmp_path, *lines)))
    assert run.left_out() == {"warm-up": 1, "checkpoint": 1, "restart": 1, "lost": 2}
    assert run.median("step_time") == 2.0
    kinds = [one.phase for one in run.segments()]
    assert "checkpoint" in kinds
    assert kinds.count("restart") == 1
    total = run.segments()[-1].stop - run.segments()[0].start
    assert sum(one.stop - one.start for one in run.segments()) == pytest.approx(total)


def test_a_batch_that_grows_is_two_groups(tmp_path):
    lines = [MEGATRON.format(second=at, step=at, ms=1000.0, batch=16 if at < 4 else 32) for at in range(1, 9)]
    found = batches(logged_run(read_steps(write(tmp_path, *lines))))
    assert [(size, len(places)) for size, places in found] == [(16.0, 3), (32.0, 5)]


def test_what_is_no_log_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no training log that is known"):
        log_kind(write(tmp_path, "hello", "world"))
    with pytest.raises(InputError, match="holds no text"):
        log_kind(write(tmp_path, ""))
    with pytest.raises(InputError, match="no step of kind megatron"):
        list(read_steps(write(tmp_path, "hello"), "megatron"))
    with pytest.raises(InputError, match='Unknown kind of training log "megatorn"'):
        steps_of([], "megatorn", "x")
    with pytest.raises(InputError, match="Cannot read"):
        list(read_steps(tmp_path / "none.log", "megatron"))


def test_junk_between_the_lines_is_passed_over(tmp_path):
    path = tmp_path / "train.log"
    good = [MEGATRON.format(second=at, step=at, ms=1000.0, batch=16).encode() for at in range(1, 4)]
    junk = [
        b"\x00\xff" * 50,
        b"iteration 9" + b"9" * 5000 + b"/ 10 | elapsed time per iteration (ms): 1 |",
        b"x" * (2**20 + 5),
    ]
    path.write_bytes(b"\r\n".join([*good, *junk, b" [2026-02-06 20:5"]))
    assert [one.step for one in steps(path, "megatron")] == [1, 2, 3]


WORDS = st.sampled_from(
    [
        *["iteration", "step:", "loss:", "5/", "10", "elapsed time per iteration (ms):", "1e999", "nan", "9" * 400],
        *[":::MLLOG", "{", "}", "completed step:", "seconds:", "{'loss': 1}", '"Step"', ",", "-3", "K", "|"],
        *["Wall time,Step,Value", "\x1b[31m"],
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=12))
def test_whatever_stands_in_lines_gives_steps_or_one_error(kind, lines):
    with contextlib.suppress(InputError):
        logged_run(steps_of(lines, kind, "fuzz"))


@pytest.mark.slow
@pytest.mark.skipif(
    "ENERGYMODEL_USER_FILES" not in os.environ, reason="set ENERGYMODEL_USER_FILES to the folder of users' files"
)
def test_medians_of_real_logs_are_those_of_a_count_by_hand():
    folder = Path(os.environ["ENERGYMODEL_USER_FILES"]) / "logs"
    texts = {name: (folder / name).read_text() for name in ("megatron_energy.log", "megatron_mixtral_16xh100.log")}
    for name, text in texts.items():
        counted = statistics.median(float(one) for one in re.findall(r"iteration \(ms\): ([\d.]+)", text))
        assert logged_run(read_steps(folder / name)).median("step_time") == pytest.approx(1e-3 * counted)
    maxtext = re.findall(r"seconds: ([\d.]+)", (folder / "maxtext.log").read_text())
    usual = [float(one) for one in maxtext[2:]]
    assert logged_run(read_steps(folder / "maxtext.log")).median("step_time") == statistics.median(usual)
    titan = logged_run(read_steps(folder / "torchtitan_b200_ranks.log"))
    assert list(titan.columns["step"]) == [4.0, 5.0]
    assert titan.median("step_time") == pytest.approx(1.637)
    blocks = logged_run(read_steps(folder / "mlperf_lora_mi355x.txt"))
    rates = re.findall(r'"throughput": ([\d.]+)', (folder / "mlperf_lora_mi355x.txt").read_text())
    assert blocks.median("step_time") == pytest.approx(8.0 / statistics.median(map(float, rates)), rel=2e-3)
