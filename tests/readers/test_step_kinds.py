"""Steps and events of each kind of training log, in SI."""

# pyright: reportAttributeAccessIssue=false

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from energymodel.errors import InputError
from energymodel.readers.log_records import LoggedStep
from energymodel.readers.step_log import join_scalars, log_kind, read_steps, steps_of
from log_lines import TEN, read, said, scalar, titan

EXAMPLES = tomllib.loads((Path(__file__).parent / "examples" / "step_logs.toml").read_text("utf-8"))["example"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_lines_as_frameworks_print_them(example: dict[str, Any]) -> None:
    """Fields that an example gives as NaN are those that a log does not state."""
    records = [said(record) for record in read(*example["lines"])]
    assert len(records) == len(example["records"])
    for record, expected in zip(records, example["records"], strict=True):
        fields = record if example.get("exact") else {name: record.get(name, math.nan) for name in expected}
        assert fields == pytest.approx(expected, nan_ok=True)


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


def test_a_chart_of_several_runs_is_refused() -> None:
    with pytest.raises(InputError, match="holds 2 runs"):
        read('"Step","a - loss","b - loss"', "1,2,3")
