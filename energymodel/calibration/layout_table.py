"""Which columns describe a training step that was run or may be run?

One row is one step of one model in one layout on one cluster. The same columns serve predictions and measurements.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.csv_table import Problem, refuse_problems
from energymodel.errors import InputError, suggest
from energymodel.performance.workload import Transformer
from energymodel.scenarios.attention_shape import check_attention_shape
from energymodel.scenarios.components import build, expand_presets
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.layers import RECOMPUTATION
from energymodel.scenarios.validate import check_context_heads, check_precisions
from energymodel.system.plan import PRECISIONS, ParallelLayout, TrainingPlan

Columns = dict[str, np.ndarray]


class LayoutColumn(NamedTuple):
    """A column: its unit, its value where it is left out (NaN: it must be given), and what it means."""

    name: str
    unit: str
    default: float
    meaning: str
    lowest: float = 1.0
    highest: float = math.inf


def _share(name: str, meaning: str, default: float = 0.0) -> LayoutColumn:
    """A column of shares, or of switches, which are 0 or 1."""
    return LayoutColumn(name, "1", default, meaning, 0.0, 1.0)


NEEDED = math.nan
NONE = (None, "", 0, "0", "0.0")
SHAPE = (
    LayoutColumn("layers", "1", NEEDED, "transformer layers"),
    LayoutColumn("hidden", "1", NEEDED, "hidden size"),
    LayoutColumn("heads", "1", NEEDED, "query heads"),
    LayoutColumn("kv_heads", "1", NEEDED, "key-value heads; by default as many as query heads"),
    LayoutColumn("head_size", "1", NEEDED, "width of a head; by default hidden / heads"),
    LayoutColumn("feed_forward", "1", NEEDED, "inner width of a feed-forward block or expert; by default 4 hidden"),
    LayoutColumn("gated", "1", 0.0, "1 if the feed-forward block has a gate (three matrices)", 0.0),
    LayoutColumn("vocabulary", "1", NEEDED, "tokens in the vocabulary"),
    LayoutColumn("sequence", "token", NEEDED, "tokens of a sequence"),
    LayoutColumn("tied", "1", 0.0, "1 if embedding and output head share their weights", 0.0),
    LayoutColumn("experts", "1", 1.0, "routed experts of a layer"),
    LayoutColumn("active_experts", "1", 1.0, "routed experts that act on a token"),
    LayoutColumn("shared_experts", "1", 0.0, "experts that always act", 0.0),
    LayoutColumn("dense_layers", "1", 0.0, "layers of a mixture of experts that have none", 0.0),
    LayoutColumn("dense_feed_forward", "1", 0.0, "inner width of those layers", 0.0),
    LayoutColumn("flash", "1", 1.0, "1 if attention is one fused kernel", 0.0),
    LayoutColumn("expert_imbalance", "1", 1.0, "load of the fullest expert over the mean"),
    _share("alternating_dense", "1 if dense layers alternate with those of experts, 0 if they come first"),
    LayoutColumn("kv_rank", "1", 0.0, "width of the key-value latent; 0 without latent attention", 0.0),
    LayoutColumn("query_rank", "1", 0.0, "width of the query latent of latent attention; 0 if it has none", 0.0),
    LayoutColumn("rope_head_size", "1", 0.0, "rotated part of head_size in latent attention", 0.0),
    LayoutColumn("value_head_size", "1", 0.0, "width of a value head in latent attention", 0.0),
    LayoutColumn("window", "token", 0.0, "tokens that a layer with a sliding window attends to", 0.0),
    _share("local_layers", "share of the layers that have a sliding window"),
    _share("parallel_block", "1 if attention and feed-forward block run in parallel"),
)
LAYOUT = (
    LayoutColumn("tensor", "1", 1.0, "tensor-parallel degree"),
    LayoutColumn("pipeline", "1", 1.0, "pipeline-parallel degree"),
    LayoutColumn("virtual_stages", "1", 1.0, "virtual stages of a pipeline rank"),
    LayoutColumn("context", "1", 1.0, "context-parallel degree"),
    LayoutColumn("expert", "1", 1.0, "expert-parallel degree; divides data x context"),
    LayoutColumn("microbatch", "1", 1.0, "sequences in a micro-batch", 0.0),
    _share("sequence_parallel", "1 if the tensor group also divides norms and residuals", 1.0),
    _share("shard_optimizer", "1 if ZeRO stage 1 or above"),
    _share("shard_gradients", "1 if ZeRO stage 2 or above"),
    _share("shard_parameters", "1 if ZeRO stage 3 or FSDP"),
    _share("recompute_attention", "1 if attention is recomputed"),
    _share("recompute_full", "1 if layers are recomputed, or the share of them"),
    _share("fp8", "share of products with weights in 8 bits"),
    _share("fp4", "share of products with weights in 4 bits"),
    _share("tf32", "share of products in TF32"),
    _share("fp32", "share of products in FP32"),
    _share("offload_parameters", "share of parameters in host memory"),
    _share("offload_gradients", "share of gradients in host memory"),
    _share("offload_optimizer", "share of the optimizer in host memory"),
    _share("offload_activations", "share of activations in host memory"),
    _share("gpipe", "1 for GPipe"),
    _share("zero_bubble", "1 for the zero-bubble schedule ZB-H1"),
    _share("zero_bubble_h2", "1 for ZB-H2"),
    _share("zero_bubble_v", "1 for ZB-V"),
    _share("dual_pipe", "1 for DualPipe"),
    _share("cuda_graphs", "share of kernel launches replayed from CUDA graphs"),
    _share("async_tensor", "1 if tensor-parallel collectives and products are divided to overlap"),
    _share("context_all_to_all", "1 if context parallelism turns tokens into heads (Ulysses), 0 for a ring"),
    LayoutColumn("first_stage_layers", "1", 0.0, "layers of the first pipeline rank; 0: as many as the others", 0.0),
    LayoutColumn("last_stage_layers", "1", 0.0, "layers of the last pipeline rank; 0: as many as the others", 0.0),
    _share("embedding_balanced", "1 if embedding and output head may take a layer's slot each"),
)
OF_CLUSTER = (
    _share("tensor_overlap", "share of tensor-parallel communication that kernels hide", NEEDED),
    _share("context_overlap", "the same of context parallelism", NEEDED),
    _share("expert_overlap", "the same of expert parallelism", NEEDED),
    _share("pipeline_overlap", "the same of messages between pipeline ranks", NEEDED),
    _share("data_overlap", "share of data-parallel communication that the backward pass may hide", NEEDED),
    _share("node_dispatch", "1 if a token goes once to each node with some of its experts (DeepEP, HybridEP)", NEEDED),
    LayoutColumn(
        "fp8_efficiency", "1", NEEDED, "rate of fp8 products over that of the chip's kernels, by recipe", 0.01
    ),
)
"""Columns that replace a number of the cluster's software; where they are left out, that number holds."""
RUN = (
    LayoutColumn("chips", "1", NEEDED, "accelerators"),
    LayoutColumn("batch_sequences", "1", NEEDED, "sequences in the global batch"),
    LayoutColumn("clock", "1", 1.0, "clock over the reference clock", 0.0),
    _share("trained_share", "share of the parameters that are trained; below 1 with adapters", 1.0),
)
MEASURED = (
    LayoutColumn("step_time_s", "s", NEEDED, "measured step time", 0.0),
    LayoutColumn("memory_b", "B", NEEDED, "measured memory of the fullest chip", 0.0),
    LayoutColumn("out_of_memory", "1", NEEDED, "1 if the run ended out of memory", 0.0),
)
INPUTS = (*SHAPE, *LAYOUT, *OF_CLUSTER, *RUN)
LARGEST: Mapping[str, float] = {
    field.name: field.metadata["range"].high
    for owner in (Transformer, ParallelLayout, TrainingPlan)
    for field in dataclasses.fields(owner)
    if "range" in field.metadata
}
"""Largest value of each column that is a number of a model, a layout or a plan, in SI."""
WORDS = ("cluster", "model", "zero", "recomputation")
"""Columns of text or code: cluster and model presets, ZeRO stage 0 to 3, recomputation none, selective or full."""
SWITCHES = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "on": 1.0, "off": 0.0}


class Layouts(NamedTuple):
    """A table: `columns` of numbers, and the cluster of each row."""

    columns: Columns
    cluster: np.ndarray

    def __len__(self) -> int:
        return len(self.cluster)

    def select(self, chosen: np.ndarray) -> "Layouts":
        """The rows where `chosen` is true, or those numbered by it."""
        return Layouts({name: values[chosen] for name, values in self.columns.items()}, self.cluster[chosen])


def layouts(
    rows: Sequence[Mapping[str, Any]], name: str = "table", lines: Sequence[int] | np.ndarray | None = None
) -> Layouts:
    """Turn rows into columns of numbers; what is left out follows from the model preset or the default.

    **Arguments:**

    - `rows`: one mapping for each layout, from column of the schema to number or text; others are left alone
      (`step_table` reads other names and refuses unknown ones).
    - `name`, `lines`: of the table, and of each row in its file, for messages.

    **Raises:** `InputError` that names all rows that cannot be read, by line and column.
    """
    table: list[dict[str, float]] = []
    cluster: list[str] = []
    problems: list[Problem] = []
    lines = range(2, len(rows) + 2) if lines is None else lines
    for line, row in zip(lines, rows, strict=True):
        found = read_row(row, f"{name}, line {line}", int(line))
        if isinstance(found, Problem):
            problems.append(found)
        else:
            table.append(found)
            cluster.append(str(row.get("cluster", "")))
    refuse_problems(name, problems, len(rows))
    return as_layouts(table, cluster)


def as_layouts(table: Sequence[Mapping[str, float]], cluster: Sequence[str]) -> Layouts:
    """Columns of rows that were read, and the cluster of each."""
    columns = {one.name: np.asarray([row[one.name] for row in table], np.float64) for one in (*INPUTS, *MEASURED)}
    return Layouts(columns, np.asarray(cluster, dtype=str))


def read_row(row: Mapping[str, Any], where: str, line: int) -> dict[str, float] | Problem:
    """Numbers of a row by column, or what is wrong with it."""
    try:
        values = _row(row, where)
        if not str(row.get("cluster") or ""):
            raise InputError(f"{where}: cluster is missing. Known: {', '.join(names('clusters'))}.")
    except InputError as error:
        return Problem(line, str(error).removeprefix(where).lstrip(",: "))
    return values


def _row(row: Mapping[str, Any], where: str) -> dict[str, float]:
    values: dict[str, float] = {}
    if row.get("model"):
        values |= _shape_of(str(row["model"]))
    for column in (*INPUTS, *MEASURED):
        text = row.get(column.name)
        if text is None or text == "":
            values.setdefault(column.name, column.default)
            continue
        values[column.name] = value = cell_number(text, f"{where}: {column.name}")
        if math.isnan(value) and not math.isnan(column.default):
            raise InputError(f"{where}: {column.name}: {text!r} is not finite. Leave the cell empty for the default.")
        if value <= 0.0 and column.name in ("step_time_s", "memory_b"):
            raise InputError(
                f"{where}: {column.name} = {value:g} {column.unit} cannot be; {column.meaning} is above 0."
            )
        if value < column.lowest:
            raise InputError(f"{where}: {column.name} = {value:g} [{column.unit}] is below {column.lowest:g}.")
        if value > (highest := min(column.highest, LARGEST.get(column.name, math.inf))):
            raise InputError(f"{where}: {column.name} = {value:g} [{column.unit}] is above {highest:g}.")
    _words(row, values, where)
    for name, fallback in (
        ("kv_heads", values["heads"]),
        ("head_size", values["hidden"] / values["heads"]),
        ("feed_forward", 4.0 * values["hidden"]),
    ):
        if math.isnan(values[name]):
            values[name] = fallback
    for column in (*SHAPE, *LAYOUT, *RUN):
        if math.isnan(values[column.name]):
            raise InputError(f"{where}: {column.name} is missing: {column.meaning} [{column.unit}].")
    check_precisions({name: values[name] for name in PRECISIONS}, where)
    check_attention_shape(values, f"{where}, ")
    ends = {name: values[name] for name in ("first_stage_layers", "last_stage_layers") if values[name] > 0.0}
    if ends and (values["pipeline"] < 2.0 or sum(ends.values()) > values["layers"]):
        words = " and ".join(f"{name} = {count:g}" for name, count in ends.items())
        raise InputError(
            f"{where}: {words} [1] do not cut {values['layers']:g} layers over {values['pipeline']:g} pipeline ranks. "
            "Give fewer layers, or pipeline of 2 or more."
        )
    check_context_heads(values, values["heads"], where)
    ranks = values["tensor"] * values["pipeline"] * values["context"]
    if values["chips"] < ranks * (1.0 - 1e-9):
        raise InputError(
            f"{where}: {values['chips']:g} chips are fewer than tensor x pipeline x context = {ranks:g}. "
            "Give more chips or smaller degrees."
        )
    return values


def cell_number(text: Any, where: str) -> float:
    """The number in a cell, which may also be yes or no; not a number where nothing is known.

    **Raises:** `InputError` that begins with `where`.
    """
    try:
        value = SWITCHES.get(str(text).strip().lower())
        value = float(text) if value is None else value
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a number. Write it without a unit.") from None
    if math.isinf(value):
        raise InputError(f"{where}: {text!r} is not finite.")
    return value


def _words(row: Mapping[str, Any], values: dict[str, float], where: str) -> None:
    stage = row.get("zero")
    if stage not in (None, ""):
        number = cell_number(stage, f"{where}: zero")
        if number not in (0.0, 1.0, 2.0, 3.0):
            raise InputError(f"{where}: zero = {stage} is not a ZeRO stage. Choose 0, 1, 2 or 3.")
        for index, name in enumerate(("shard_optimizer", "shard_gradients", "shard_parameters")):
            values[name] = float(number > index)
    word = row.get("recomputation")
    if word not in (None, ""):
        if word not in RECOMPUTATION:
            raise InputError(f'{where}: unknown recomputation "{word}". {suggest(str(word), RECOMPUTATION)}')
        values["recompute_attention"], values["recompute_full"] = RECOMPUTATION[str(word)]


def _shape_of(model: str) -> dict[str, float]:
    if model not in names("models"):
        raise InputError(f'Unknown model "{model}". {suggest(model, names("models"))}')
    shape = build(expand_presets(read_preset("models", model), Transformer, "model"), Transformer, "model", {})
    return {column.name: float(getattr(shape, column.name)) for column in SHAPE}
