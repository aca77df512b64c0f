"""Lines of training logs as their frameworks print them, and what is read from them."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.step_log import steps_of

MEGATRON = (
    " [2025-03-01 10:00:{s:02d}.500000] iteration {i:8d}/    1000 | consumed samples: {n:12d} | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 400.5 | "
    "energy per GPU (J/iter/GPU): 1500.0 | power per GPU (W/GPU): 600.0 | learning rate: 3.000000E-04 | "
    "global batch size:    64 | lm loss: {loss} | loss scale: 1.0 | grad norm: 0.5 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
TITAN = (
    "[rank{r}]:[titan] 2025-03-01 10:00:{s:02d},250 - root - INFO - \x1b[31mstep: {i:2}  \x1b[32mloss: {loss:7.4f}  "
    "\x1b[38;2;180;60;0mgrad_norm:  1.5000  \x1b[36mmemory: 40.00GiB(50.00%)  \x1b[34mtps: 12,345  "
    "\x1b[36mtflops: 1,234.50  \x1b[35mmfu: 39.26%\x1b[39m"
)
NANOTRON = (
    "{t} [INFO|DP=0|PP=0|TP=0|host]: iteration: {i} / 100 | consumed_tokens: {c}M | "
    "elapsed_time_per_iteration_ms: 2K | tokens_per_sec: 524K | tokens_per_sec_per_gpu: 65.5K | "
    "global_batch_size: {b} | lm_loss: 8.1 | lr: 0.0003 | model_tflops_per_gpu: 350 | "
    "hardware_tflops_per_gpu: 360 | grad_norm: 0.7"
)


def megatron(i: int, s: int = 0, loss: str = "2.5E+00", ms: float = 2500.0) -> str:
    return MEGATRON.format(i=i, s=s, n=64 * i, loss=loss, ms=ms)


def titan(i: int, s: int, r: int = 0, loss: float = 7.0) -> str:
    return TITAN.format(i=i, s=s, r=r, loss=loss)


def read(*lines: str, kind: str | None = None, name: str = "log") -> list[LoggedStep | LogEvent]:
    return list(steps_of(lines, kind, name))


def only_steps(records: list[LoggedStep | LogEvent]) -> list[LoggedStep]:
    return [record for record in records if isinstance(record, LoggedStep)]


def only_events(records: list[LoggedStep | LogEvent]) -> list[LogEvent]:
    return [record for record in records if isinstance(record, LogEvent)]


def said(record: LoggedStep | LogEvent) -> dict[str, Any]:
    return {
        k: v
        for k, v in dataclasses.asdict(record).items()
        if v is not None and (isinstance(v, str) or not math.isnan(v))
    }


# 2025-03-01 10:00:00 UTC by `date -u -d '2025-03-01 10:00:00' +%s`
TEN = 1740823200.0


def mlperf(seconds: float, key: str, value: object = None, samples: int | None = None) -> str:
    metadata = {"lineno": 1} | ({} if samples is None else {"samples_count": samples})
    entry = {"namespace": "", "time_ms": 1740823200000 + round(seconds * 1000), "key": key, "value": value}
    return f"3: text :::MLLOG {json.dumps(entry | {'metadata': metadata})} more text"


def scalar(path: Path, *rows: str) -> Path:
    path.write_text("Wall time,Step,Value\n" + "".join(f"{row}\n" for row in rows))
    return path
