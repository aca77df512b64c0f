"""Does each kind of training log give its steps and events in SI?"""

# pyright: reportAttributeAccessIssue=false

import json
import math
from pathlib import Path
from typing import Any

import pytest

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.step_log import join_scalars, log_kind, read_steps, steps_of
from log_lines import NANOTRON, TEN, megatron, mlperf, only_events, only_steps, read, said, scalar, titan


def test_megatron_gives_every_field_in_si() -> None:
    (step,) = read("  seq_length ................... 4096", megatron(7, s=3))
    assert said(step) == {
        "step": 7, "time": TEN + 3.5, "step_time": 2.5, "tokens": 64 * 4096.0, "sequences": 64.0,
        "flops_rate": 400.5e12, "loss": 2.5, "learning_rate": 3e-4, "grad_norm": 0.5, "energy": 1500.0, "power": 600.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (
            "[default3]: iteration       10/  292968 | consumed samples:        10240 | elapsed time per iteration "
            "(s): 35.8651 | global batch size:  1024 | lm loss: 1.332803E+01 | grad norm: 42.627 "
            "| samples per second: 28.551 | TFLOPs: 199.03 |",
            {"step": 10, "step_time": 35.8651, "sequences": 1024.0, "flops_rate": 199.03e12, "loss": 13.32803},
        ),
        (
            "7:  iteration 5426/  250000 | consumed samples: 43408 | consumed tokens:     88899584 | elapsed time per "
            "iteration (ms): 4247.9 | global batch size:     8 | grad norm: nan | actual seqlen:  2048 | "
            "number of nan iterations:   1 | TFLOPs: 78.46 |",
            {"step": 5426, "step_time": 4.2479, "tokens": 16384.0, "tokens_so_far": 88899584.0},
        ),
        (
            " iteration      100/  500000 | elapsed time per iteration (ms): 1045.3 | learning rate: 1.500E-04 | "
            "lm loss: 8.7E+00 | loss scale: 32768.0 |",
            {"step": 100, "step_time": 1.0453, "loss": 8.7},
        ),
        (
            "10.0.0.1: [2023-05-02 01:02:03,456] samples/sec: 34.5 | iteration       10/  320000 | elapsed time per "
            "iteration (ms): 29000.0 | learning rate: 1.9E-06 | approx flops per GPU: 98.6TFLOPS | lm_loss: 8.1E+00 |",
            {"step": 10, "step_time": 29.0, "flops_rate": 98.6e12, "loss": 8.1, "learning_rate": 1.9e-6},
        ),
        (
            "Training epoch 0, iteration 5/99 | lr: 1e-05 | global_batch_size: 128 | global_step: 5 | "
            "reduced_train_loss: 11.03 | train_step_timing in s: 5.1 | consumed_samples: 768",
            {"step": 5, "step_time": 5.1, "sequences": 128.0, "loss": 11.03},
        ),
        (
            "[rank7][2025-01-01 00:00:00] iteration 3/ 50 | elapsed time per iteration (ms): 900.5/905.1 | tokens per "
            "GPU (tokens/s/GPU): 4548.6/4500.0 | global batch size: 16 | lm loss: 1.0E+01 |",
            {"step": 3, "step_time": 0.9005, "token_rate": 4548.6},
        ),
        (
            "[20250301 10:00:29][rank-31/32][INFO ] [trainer.py:2] :  iteration    12125/   36000 | elapsed time per "
            "iteration (ms): 2701.3/2712.7 | hip mem usage/free/total/usage_ratio: 227.0GB/28.63GB/255.98GB/88.81% | "
            "throughput per GPU (TFLOP/s/GPU): 210.5/217.3 | global batch size:   256 | lm loss: 2.352391E+00 |",
            {"step": 12125, "time": 1740823229.0, "flops_rate": 210.5e12, "memory": 227.0 * 2**30},
        ),
    ],
)
def test_relatives_of_megatron(line: str, known: dict[str, Any]) -> None:
    (step,) = read(line)
    assert known.items() <= pytest.approx(said(step)).expected.items()


def test_megatron_tells_evaluations_checkpoints_and_restarts() -> None:
    records = read(
        "[before the start of training step] datetime: 2025-03-01 10:00:00 ",
        megatron(100, s=1),
        "    evaluate .......................................: (4219.24, 4229.72)",
        " validation loss at iteration 100 on validation set | lm loss value: 2.25E+00 | lm loss PPL: 9.5E+00 | ",
        "saving checkpoint at iteration     100 to /ckpt in torch_dist format",
        "  successfully saved checkpoint from iteration     100 to /ckpt",
        "    save-checkpoint ................................: (1234.50, 1236.70)",
        megatron(110, s=9),
        "  successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 100",
        megatron(101, s=40),
        megatron(50, s=50),
        "[after training is done] datetime: 2025-03-01 10:01:00 ",
    )
    kinds = [record.kind if isinstance(record, LogEvent) else record.step for record in records]
    assert kinds == ["start", 100, "evaluation", "checkpoint", 110, "restart", 101, "restart", 50, "stop"]
    evaluation, checkpoint = only_events(records)[1:3]
    assert (evaluation.value, evaluation.duration, evaluation.step) == (2.25, 4.22972, 100)
    assert (checkpoint.duration, checkpoint.step) == (pytest.approx(1.2367), 100)
    assert only_events(records)[-1].time == TEN + 60


def test_megatron_memory_is_printed_once_and_bridge_prints_flops_before() -> None:
    line = "iteration {i}/ 50 | elapsed time per iteration (ms): 9089.0 | lm loss: 8.1E+00 |"
    records = read(
        line.format(i=1),
        "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1024.00 | max allocated: 2048.00 | reserved: 3072.00 | "
        "max reserved: 4096.00",
        "Step Time : 9.09s GPU utilization: 663.5MODEL_TFLOP/s/GPU",
        line.format(i=2),
    )
    first, second = only_steps(records)
    assert math.isnan(first.memory)
    assert (second.memory, second.flops_rate) == (4096 * 2**20, pytest.approx(663.5e12))


def test_an_asynchronous_checkpoint_is_told_once() -> None:
    saved = "  successfully saved checkpoint from iteration     100 to /ckpt"
    records = read(
        megatron(100, s=1), "saving checkpoint at iteration 100 to /ckpt", megatron(101, s=4), saved, megatron(102, s=7)
    )
    assert [event.kind for event in only_events(records)] == ["checkpoint"]


def test_torchtitan_counts_a_step_once_and_takes_its_time_from_the_clock() -> None:
    lines = [titan(10, 0), titan(10, 0, r=1), titan(20, 30, r=1), titan(20, 30), titan(10, 0, r=2), titan(30, 50, r=2)]
    log = steps_of(lines, None, "log")
    first, second, third = list(log)
    assert said(first) == {
        "step": 10, "time": TEN + 0.25, "token_rate": 12345.0, "flops_rate": 1234.5e12, "loss": 7.0, "grad_norm": 1.5,
        "memory": 40.0 * 2**30,
    }  # fmt: skip
    assert (second.step, third.step) == (20, 30)
    assert isinstance(second, LoggedStep)
    assert isinstance(third, LoggedStep)
    assert (second.step_time, third.step_time) == (3.0, 2.0)
    assert log.kind == "torchtitan"
    assert log.left_out == {"steps printed again by other ranks": 3}


def test_torchtitan_tells_checkpoints_and_starts_the_clock_after_an_evaluation() -> None:
    records = read(
        titan(10, 0),
        "[rank0]:2025-03-01 10:00:12,250 - root - INFO - validate step: 10  loss: 6.5000  memory: 40.00GiB(50.00%)  "
        "tps: 20,000",
        "[rank0]:2025-03-01 10:00:15,000 - root - INFO - Saving the checkpoint (or staging if async is enabled).",
        "[rank0]:2025-03-01 10:00:17,000 - root - INFO - Finished saving the checkpoint (or staging if async is "
        "enabled)in 2.75 seconds.",
        titan(20, 42),
        "[rank0]:2025-03-01 10:00:43,000 - root - INFO - Training completed",
    )
    assert [said(event) for event in only_events(records)] == [
        {"kind": "evaluation", "time": TEN + 12.25, "value": 6.5, "step": 10},
        {"kind": "checkpoint", "time": TEN + 17.0, "duration": 2.75},
        {"kind": "stop", "time": TEN + 43.0},
    ]
    assert only_steps(records)[1].step_time == 3.0


def test_old_torchtitan_has_words_per_second() -> None:
    (step,) = read(
        "[rank0]:2024-06-01 01:00:00,000 - root - step: 10  loss: 7.1  memory: 36.4GiB(46.1%)  wps: 1,234  mfu: 39%"
    )
    assert said(step).items() >= {"token_rate": 1234.0, "memory": 36.4 * 2**30, "loss": 7.1}.items()


def test_maxtext_yields_all_steps() -> None:
    first = "I0219 19:34:48.976376 1364 logger.py:255] completed step: 0, seconds: 0.512, TFLOP/s/device: 9000.0, "
    records = read(
        first + "Tokens/s/device: 8672.758, total_weights: 196608, loss: 10.374",
        "completed step: 1, seconds: 2.167, TFLOP/s: 36.722, loss: nan",
        "eval metrics after step: 1, loss=9.500, total_weights=4096",
        "Started an asynchronous checkpoint save for step 1",
    )
    zero, one = only_steps(records)
    assert said(zero) == {
        "step": 0, "step_time": 0.512, "tokens": 196608.0, "token_rate": 8672.758, "flops_rate": 9e15, "loss": 10.374,
    }  # fmt: skip
    assert said(one) == {"step": 1, "step_time": 2.167, "flops_rate": 36.722e12}
    assert [(e.kind, e.value if e.kind == "evaluation" else e.step) for e in only_events(records)] == [
        ("evaluation", 9.5),
        ("checkpoint", 1),
    ]


@pytest.mark.parametrize(("batch", "sequences", "tokens"), [("256", 256.0, 2 * 524e3), ("1.05M", math.nan, 1.05e6)])
def test_nanotron_counts_its_batch_in_sequences_or_tokens(batch: str, sequences: float, tokens: float) -> None:
    (step,) = only_steps(read(NANOTRON.format(t="03/01/2025 10:00:02", i=3, c="3.15", b=batch)))
    assert step.sequences == pytest.approx(sequences, nan_ok=True)
    assert step.tokens == pytest.approx(tokens)
    assert (step.time, step.step_time, step.token_rate) == (TEN + 2, 2.0, 65.5e3)
    assert (step.flops_rate, step.learning_rate, step.tokens_so_far) == (350e12, 3e-4, pytest.approx(3.15e6))


def test_nanotron_without_year_and_with_its_configuration() -> None:
    line = NANOTRON.format(t="\x1b[2;3m03/01 10:00:02", i=3, c="3.15", b="256")
    (step,) = only_steps(read("config: tokens=TokensArgs(sequence_length=4096, train_steps=100)", line))
    assert math.isnan(step.time)
    assert step.tokens == 256 * 4096


def test_trainer_state_gives_the_mean_step(tmp_path: Path) -> None:
    state = {
        "epoch": 1.0,
        "global_step": 20,
        "log_history": [
            {"epoch": 0.5, "grad_norm": 1.5, "learning_rate": 2e-5, "loss": 1.25, "step": 10, "num_tokens": 4000.0},
            {"epoch": 0.5, "eval_loss": 1.125, "eval_runtime": 20.0, "step": 10},
            {"epoch": 1.0, "grad_norm": "1.1", "loss": "1.0", "step": 20, "memory/device_reserved (GiB)": 2.0,
             "tokens/train_per_sec_per_gpu": 555.5, "num_tokens": 9000.0},
            {"epoch": 1.0, "step": 20, "total_flos": 1e18, "train_loss": 1.1, "train_runtime": 120.0},
        ],
    }  # fmt: skip
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(state, indent=2))
    records = list(read_steps(path))
    assert [said(record) for record in records] == [
        {"step": 10, "step_time": 5.0, "loss": 1.25, "grad_norm": 1.5, "learning_rate": 2e-5, "tokens_so_far": 4000.0},
        {"kind": "evaluation", "duration": 20.0, "value": 1.125, "step": 10},
        {"step": 20, "step_time": 5.0, "loss": 1.0, "grad_norm": 1.1, "memory": 2.0 * 2**30, "token_rate": 555.5,
         "tokens_so_far": 9000.0, "tokens": 500.0},
        {"kind": "stop", "duration": 120.0, "step": 20},
    ]  # fmt: skip
    path.write_text(json.dumps(state))
    assert list(read_steps(path)) == records


def test_printed_entries_take_step_and_time_from_the_bar(tmp_path: Path) -> None:
    text = (
        "Map: 100%|##########| 5000/5000 [00:10<00:00, 480.00 examples/s]\n"
        "\r  0%|          | 0/873 [00:00<?, ?it/s]\r  1%|1         | 10/873 [00:50<71:00,  5.25s/it]\n"
        "{'loss': 1.5, 'grad_norm': 2.0, 'learning_rate': 2e-05, 'epoch': 0.01}\n"
        "\r  1%|1         | 10/873 [00:50<71:00,  5.25s/it]"
        "\r  0%|          | 0/8 [00:00<?, ?it/s]\r 50%|#####     | 4/8 [00:01<00:01,  3.00it/s]\n"
        "{'eval_loss': 1.4, 'eval_runtime': 2.5, 'epoch': 0.01}\n"
        "\r  2%|2         | 20/873 [01:40<71:00,  5.00s/it]\n"
        "{'loss': nan, 'grad_norm': nan, 'learning_rate': '1.9e-05', 'epoch': 0.02}\n"
        "{'train_runtime': 101.5, 'train_loss': 1.2, 'epoch': 0.02}\n"
    )
    path = tmp_path / "train.log"
    path.write_text(text)
    records = list(read_steps(path))
    assert [said(record) for record in records] == [
        {"step": 10, "step_time": 5.25, "loss": 1.5, "grad_norm": 2.0, "learning_rate": 2e-5},
        {"kind": "evaluation", "duration": 2.5, "value": 1.4, "step": 10},
        {"step": 20, "step_time": 5.0, "learning_rate": 1.9e-5},
        {"kind": "stop", "duration": 101.5, "step": 20},
    ]


def test_an_entry_may_begin_with_any_key() -> None:
    (step,) = read(" 84%|####| 320/380 [1:27:33<14:12, 14.21s/it] {'num_tokens': 900.0, 'loss': 0.5, 'epoch': 4.2}")
    assert said(step) == {"step": 320, "step_time": 14.21, "tokens_so_far": 900.0, "loss": 0.5}


def test_printed_entries_without_bar_are_counted() -> None:
    steps = only_steps(read("{'loss': 1.5, 'epoch': 0.1}", "noise", "{'loss': 1.4, 'epoch': 0.2}"))
    assert [(step.step, step.loss) for step in steps] == [(1, 1.5), (2, 1.4)]


def test_mlperf_gives_mean_steps_without_evaluations() -> None:
    records = read(
        mlperf(0, "global_batch_size", 8), mlperf(0, "max_sequence_length", 8192), mlperf(1, "run_start"),
        mlperf(1, "block_start", samples=0), mlperf(9, "tracked_stats", {"train_loss": 1.5}, samples=32),
        mlperf(17, "block_stop", samples=64), mlperf(17, "eval_start", samples=64),
        mlperf(20, "eval_accuracy", 0.94, samples=64), mlperf(21, "eval_stop", samples=64),
        mlperf(21, "block_start", samples=64), mlperf(30, "block_stop", samples=88), mlperf(31, "run_stop"),
    )  # fmt: skip
    assert [said(record) for record in records] == [
        {"kind": "start", "time": TEN + 1},
        {"step": 4, "time": TEN + 9, "step_time": 2.0, "sequences": 8.0, "tokens": 65536.0, "loss": 1.5},
        {"step": 8, "time": TEN + 17, "step_time": 2.0, "sequences": 8.0, "tokens": 65536.0},
        {"kind": "evaluation", "time": TEN + 21, "duration": 4.0, "value": 0.94, "step": 8},
        {"step": 11, "time": TEN + 30, "step_time": 3.0, "sequences": 8.0, "tokens": 65536.0},
        {"kind": "stop", "time": TEN + 31, "duration": 30.0},
    ]


def test_tensorboard_names_the_scalar_by_its_file_and_joins_several(tmp_path: Path) -> None:
    loss = scalar(tmp_path / "run-a-tag-loss_metrics_global_avg_loss.csv", "100.5,10,2.5", "120.5,20,2.25")
    rate = scalar(tmp_path / "run-a-tag-throughput(tps).csv", "100.75,10,5000", "120.75,20,6000", "140.75,30,7000")
    value = scalar(tmp_path / "lm loss validation.csv", "125,20,2.0")
    assert log_kind(loss) == "tensorboard"
    assert [said(step) for step in read_steps(loss)] == [
        {"step": 10, "time": 100.5, "loss": 2.5},
        {"step": 20, "time": 120.5, "step_time": 2.0, "loss": 2.25},
    ]
    joined = list(join_scalars([loss, rate, value]))
    assert [said(record) for record in joined] == [
        {"step": 10, "time": 100.5, "loss": 2.5, "token_rate": 5000.0},
        {"step": 20, "time": 120.5, "loss": 2.25, "token_rate": 6000.0},
        {"kind": "evaluation", "time": 125.0, "value": 2.0, "step": 20},
        {"step": 30, "time": 140.75, "token_rate": 7000.0},
    ]
    unknown = scalar(tmp_path / "scalar.csv", "100.5,10,2.5", "120.5,20,2.25")
    assert [said(step) for step in read_steps(unknown)] == [
        {"step": 10, "time": 100.5}, {"step": 20, "time": 120.5, "step_time": 2.0},
    ]  # fmt: skip
    with pytest.raises(InputError, match='both hold the scalar "loss"'):
        list(join_scalars([loss, loss]))
    with pytest.raises(InputError, match="No step"):
        list(join_scalars([scalar(tmp_path / "loss.csv")]))


def test_wandb_charts_and_histories() -> None:
    chart = read('"Step","run - train/loss","run - train/loss__MIN","run - train/loss__MAX"', "1,2.5,2.4,2.6", "2,,,")
    assert [said(record) for record in chart] == [{"step": 1, "loss": 2.5}]
    history = read(
        "_step,_runtime,_timestamp,train/loss,train/global_step,train/learning_rate,eval/loss",
        "0,1.0,1740823201.0,2.5,10,0.0001,",
        "1,1.5,1740823201.5,,10,,2.25",
        "2,11.0,1740823211.0,2.0,20,0.0002,",
    )
    assert [said(record) for record in history] == [
        {"step": 10, "time": TEN + 1, "loss": 2.5, "learning_rate": 1e-4},
        {"kind": "evaluation", "time": TEN + 1.5, "value": 2.25, "step": 10},
        {"step": 20, "time": TEN + 11, "step_time": pytest.approx(0.95), "loss": 2.0, "learning_rate": 2e-4},
    ]
    with pytest.raises(InputError, match="holds 2 runs"):
        read('"Step","a - loss","b - loss"', "1,2,3")


def test_megatron_of_2019_has_fields_without_colons() -> None:
    line = " iteration 100/ 300 | elapsed time per iteration (ms): 512.5 | learning rate 1.5E-04 | lm loss 5.25E+00 |"
    (step,) = steps_of([line], None, "a.log")
    assert (step.step_time, step.loss, step.learning_rate) == (0.5125, 5.25, 1.5e-4)


def test_bars_of_nemo_give_each_step_once() -> None:
    bar = "Epoch 0: :  {0}%|#| {1}/100 [06:19<07:13, v_num=0, reduced_train_loss={2}, global_step={3}, "
    rest = "consumed_samples={0}, train_step_timing in s={1}{2}]"
    lines = [
        bar.format(0, 0, 11.5, "0.00") + rest.format("128.0", 30.0, ""),
        bar.format(5, 5, 11.5, "4.00") + rest.format("640.0", 30.0, ""),
        bar.format(6, 6, 11.4, "5.00") + rest.format("768.0", 9.0, ""),
        bar.format(6, 6, 11.25, "5.00") + rest.format("768.0", 9.5, ""),  # the same step, drawn again
        bar.format(7, 7, 11.0, "6.00") + rest.format("9e+2", 9.5, ", val_loss=10.5"),
    ]
    first, second, third, evaluation = steps_of(lines, None, "a.log")
    assert (first.step, first.loss, first.step_time, first.sequences) == (5, 11.5, 30.0, 128.0)
    assert (second.step, second.loss, second.step_time) == (6, 11.25, 9.5)
    assert third.step == 7
    assert (evaluation.kind, evaluation.value, evaluation.step) == ("evaluation", 10.5, 7)


def test_maxtext_without_a_whole_loss_gives_that_of_the_next_token() -> None:
    line = "completed step: 3, seconds: 5.5, TFLOP/s/device: 56.0, main_model_loss: 11.5, mtp_loss: 1.25"
    (step,) = steps_of([line], None, "a.log")
    assert step.loss == 11.5


@pytest.mark.parametrize(("per_sample", "start"), [(1, 1), (512, 0)])
def test_mlperf_counts_samples_or_tokens_in_epoch_num(per_sample: int, start: int) -> None:
    line = ':::MLLOG {{"time_ms": {0}, "key": "{1}", "value": {2}, "metadata": {3}}}'
    lines = [
        line.format(0, "global_batch_size", 768, "{}"),
        line.format(0, "max_sequence_length", 512, "{}"),
        line.format(1000, "run_start", "null", "{}"),
        line.format(1000, "epoch_start", "null", f'{{"epoch_num": {start}}}'),
        line.format(21000, "tracked_stats", "{}", f'{{"epoch_num": {per_sample * 7680}}}'),
        line.format(61000, "tracked_stats", "{}", f'{{"epoch_num": {per_sample * 15360}}}'),
    ]
    found = [one for one in steps_of(lines, None, "a.txt") if isinstance(one, LoggedStep)]
    assert [(one.step, one.step_time) for one in found] == [(10, 2.0), (20, 4.0)]
