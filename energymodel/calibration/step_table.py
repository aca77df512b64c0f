"""Tables of training steps in the words of public files.

Words become numbers, and what a file says in another way becomes the columns of `layout_table`: degrees that follow
from others, precisions, step times from rates, failed runs.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.cluster_source import cluster_word, measured_cluster, model_preset
from energymodel.calibration.layout_table import (
    DECLARED,
    INPUTS,
    MEASURED,
    ROW,
    SCHEMA,
    SHAPE,
    UNMODELLED,
    as_layouts,
    cell_number,
    row_numbers,
)
from energymodel.errors import InputError, suggest
from energymodel.performance.workload import Transformer, attention_flops_per_token
from energymodel.readers.columns import AS_WRITTEN, TableChoices, plain_name
from energymodel.readers.table import CsvTable, Measurements, Problem, Records, left_out, read_csv
from energymodel.scenarios.components import refuse_state_space
from energymodel.scenarios.files import names
from energymodel.scenarios.layers import SHORT_WORDS, layout_switches
from energymodel.units import counted

PREDICTED = "predicted_"  # begins the name of a column that `predict` appends
VOCABULARY = 51200.0  # of a table that does not state it: that of GPT-2, padded as Megatron-LM does
NOTHING, OUT_OF_MEMORY, SIXTEEN_BITS = (tuple(DECLARED[name]) for name in ("nothing", "out_of_memory", "sixteen_bits"))
FAILED = (*OUT_OF_MEMORY, *DECLARED["failed"])
PRECISIONS, SHARDING, RECOMPUTATION = (DECLARED[name] for name in ("precisions", "sharding", "recomputations"))
OVERLAPS = ("data_overlap", "tensor_overlap")  # columns for which a table may say whether there is any overlap
RATES = ("tokens_per_s", "tokens_per_s_per_chip", "model_flops_per_chip")
NUMBERS = frozenset(column.name for column in INPUTS)
TERA = 1e12  # FLOP/s, as `model_flops_per_chip` is given
BACK_AND_FORTH = 4.0 / 3.0  # operations with full recomputation over those without


def read_step_table(
    source: Path | Records | CsvTable, choices: TableChoices = AS_WRITTEN, *, default_cluster: str = ""
) -> Measurements:
    """Read a CSV file of layouts, measured or not, or rows of them.

    Beside the numbers of `layout_table` a row has its cluster, its group and run if they are stated, and whether it is
    a run that failed.

    **Arguments:**

    - `default_cluster`: word for the cluster of rows that name none; without it such rows are refused.

    **Raises:** `InputError` that names the file, and all unknown columns or all bad rows by line.
    """
    csv = source if isinstance(source, CsvTable) else read_csv(source, choices.where, name=choices.name)
    folder = Path(csv.path).parent
    filled = {name for at, name in enumerate(csv.header) if any(row[at].lower() not in NOTHING for row in csv.rows)}
    refuse_state_space(sorted(filled - set(choices.ignore)), csv.path)
    targets, constants, unused = SCHEMA.matched(csv.path, csv.header, choices)
    plain = {index: plain_name(name) for index, name in enumerate(csv.header) if name not in choices.ignore}
    switches = {index: name for index, name in plain.items() if name in UNMODELLED}
    fixed = {name: target.in_si(word) for name, (target, word) in constants.items()}
    rows: list[tuple[int, _Row, dict[str, float], str]] = []
    problems, assumed = list(csv.problems), Counter[str]()
    for line, cells in zip(csv.lines, csv.rows, strict=True):
        words = fixed | {target.column.name: target.in_si(cells[at]) for at, target in targets.items()}
        try:
            for at, name in switches.items():
                if cells[at].lower() not in UNMODELLED[name]:
                    what = "state-space layers are" if name == "hybrid" else "this is"
                    raise InputError(
                        f"{ROW}: {name} = {cells[at]}: {what} not modelled. Leave the row out, or take it for one "
                        f"without: --ignore-columns {name}."
                    )
            row = _Row(words, assumed)
            schema = row.schema()
            if default_cluster:
                cluster = measured_cluster(words, folder, default_cluster)
            elif (cluster := words.get("cluster", "")) not in choices.clusters:
                cluster = cluster_word(words, folder, choices.cluster, ROW, assumed)
            rows.append((line, row, row_numbers({**schema, "cluster": cluster}), cluster))
        except InputError as error:
            problems.append(Problem(line, str(error).removeprefix(ROW).lstrip(",: ")))
    notes = [*csv.notes, *(f"{counted(count, 'row')}: {what}" for what, count in assumed.items())]
    notes += left_out(csv.path, problems, len(csv.rows) + len(csv.problems), choices)
    if not rows:
        reason = f"{len(problems)} rows cannot be read, the first: {min(problems).reason}" if problems else "no rows."
        raise InputError(f"{csv.path}: {reason} Give a header line and one line for each layout.")
    if unused:
        notes.append(f"Columns that are not used: {', '.join(unused)}.")
    lines, read, numbers, clusters = zip(*rows, strict=True)
    layouts = as_layouts(numbers, clusters, lines, csv.path)
    notes += _fill_step_times(layouts, [row.measured_rates(own) for row, own in zip(read, numbers, strict=True)])
    columns = {
        name: np.array([row.texts[name] for row in read]) for name in ("group", "run", "model") if name in read[0].texts
    }
    return layouts.having({**columns, "failed": np.array([row.failed for row in read])}, notes)


class _Row:
    """One row: what its words say in the columns of the schema."""

    def __init__(self, texts: Mapping[str, str], assumed: Counter[str]) -> None:
        self.texts, self.assumed, self.failed = texts, assumed, False
        # A cell without a word is as good as empty; `nan` is so in measured columns only, elsewhere it is no number.
        self.words = {
            name: word
            for name, word in texts.items()
            if word.lower() not in NOTHING or (word.lower() == "nan" and name in NUMBERS)
        }

    def number(self, name: str) -> float | None:
        """A number of the row, if it states it."""
        word = self.words.get(name)
        return None if word is None else cell_number(word, name)

    def product(self, *names: str) -> float:
        """Of numbers that are 1 where they are not stated."""
        return math.prod(1.0 if number is None else number for number in map(self.number, names))

    def schema(self) -> dict[str, Any]:
        """The row in the columns of `layout_table`."""
        for name in RATES:
            if (rate := self.number(name) or 0.0) < 0.0:
                raise InputError(f"{ROW}: {name} = {rate:g} cannot be; a measured rate is above 0.")
        self._read_outcome()
        names = (column.name for column in (*INPUTS, *MEASURED) if column.name in self.words)
        values: dict[str, Any] = {name: self.words[name] for name in names}
        self._read_shape(values)
        self._read_choices(values)
        for name in OVERLAPS:
            # What is switched on hides the share that the cluster has.
            if self.number(f"{name}_switch") == 0.0:
                values.setdefault(name, 0.0)
        self._read_counts(values)
        return values

    def _read_outcome(self) -> None:
        """A run that failed has no step time."""
        for name in ("status", "step_time_s", "memory_b", "out_of_memory"):
            word = self.words.get(name, "").lower()
            if name == "out_of_memory":
                full = word not in ("", "0") and cell_number(word, name) > 0.0
            else:
                full = any(part in word for part in OUT_OF_MEMORY)
            if full or word.startswith(FAILED):
                self.failed = True
                self.words |= {"out_of_memory": "1"} if full else {}
                if name in ("step_time_s", "memory_b"):
                    del self.words[name]
        for name in ("step_time_s", *RATES) if self.failed else ():
            self.words.pop(name, None)

    def _read_shape(self, values: dict[str, Any]) -> None:
        experts = self.number("experts") or 1.0
        inner = self.number("expert_feed_forward")
        if inner is not None and experts > 1.0:
            if "feed_forward" in values and "dense_layers" in values:
                values.setdefault("dense_feed_forward", values["feed_forward"])
            values["feed_forward"] = inner
        shared = self.number("shared_expert_feed_forward")
        if shared is not None:
            width = cell_number(values.get("feed_forward", shared), "feed_forward")
            values.setdefault("shared_experts", shared / width)
        own = all(name in values for name in ("layers", "hidden", "heads"))
        if not own and (word := self.words.get("model")) is not None:
            values["model"] = model_preset(word)
            if values["model"] is None:
                raise InputError(
                    f'{ROW}: model "{word}" is no preset, and the row does not state layers, hidden and heads. '
                    f"{suggest(word.lower(), names('models'))}"
                )
        if own and "vocabulary" not in values:
            values["vocabulary"] = VOCABULARY
            self.assumed[
                f"vocabulary is not stated: {VOCABULARY:,.0f} tokens (--column vocabulary=N for another)."
            ] += 1

    def _read_choices(self, values: dict[str, Any]) -> None:
        """ZeRO stage, recomputation, precision and schedule."""
        stage = self.words.get("zero")
        if stage is None and "sharding" in self.words:
            stage = self._meaning("sharding", SHARDING)
        if stage is None and (self.number("fsdp") or 0.0) > 0.0:
            stage = "3"
        if stage is not None:
            values["zero"] = stage.lower().removeprefix("zero").lstrip("-_ ") or stage
        if word := self.texts.get("recomputation", "").lower():
            parts = re.split(r"[+,\s]+", word.strip())
            modules = [part for part in parts if part in SHORT_WORDS["recomputation"]]
            values["recomputation"] = RECOMPUTATION.get(word) or "+".join(modules) or parts[0]
        if word := self.words.get("precision", "").lower():
            name = next((ours for part, ours in PRECISIONS.items() if part in word), None)
            if name is not None:
                values.setdefault(name, 1.0)
            elif not any(part in word for part in SIXTEEN_BITS):
                self._meaning("precision", dict.fromkeys(("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "tf32", "fp32"), ""))
        if "schedule" in self.words:
            switches = layout_switches({"schedule": self.words["schedule"].lower()}, f"{ROW}: ")
            values |= {name: on for name, on in switches.items() if on}

    def _meaning(self, name: str, meanings: Mapping[str, str]) -> str:
        word = self.words[name].lower()
        if word not in meanings:
            raise InputError(f'{ROW}: {name}: unknown "{word}". {suggest(word, meanings)}')
        return meanings[word]

    def _read_counts(self, values: dict[str, Any]) -> None:
        """Chips, batch and virtual stages that follow from other counts, or must agree with them."""
        per_stage, layers = self.number("layers_per_virtual_stage"), self.number("layers")
        if per_stage and layers and "virtual_stages" not in values:
            values["virtual_stages"] = max(1.0, layers / (self.product("pipeline") * per_stage))
        data, ranks = self.number("data"), self.product("tensor", "pipeline", "context")
        if data is not None:
            self._follow(values, "chips", data * ranks, "data x tensor x pipeline x context")
        sequence, tokens = self.number("sequence"), self.number("batch_tokens")
        if tokens is not None and sequence:
            self._follow(values, "batch_sequences", tokens / sequence, "batch_tokens / sequence")
        steps, chips = self.number("grad_accumulation"), self.number("chips")
        if steps is not None and (data is not None or chips is not None):
            replicas = data if data is not None else (chips or 0.0) / ranks
            follows = steps * replicas * self.product("microbatch")
            batch = self.number("batch_sequences")
            if batch is not None and sequence and math.isclose(batch, follows * sequence, rel_tol=1e-3):
                values["batch_sequences"] = follows
                self.assumed["the batch is stated in tokens: read so."] += 1
            else:
                self._follow(values, "batch_sequences", follows, "data x microbatch x grad_accumulation")

    def _follow(self, values: dict[str, Any], name: str, follows: float, what: str) -> None:
        if (number := self.number(name)) is None:
            values[name] = follows
        elif not math.isclose(number, follows, rel_tol=1e-2):
            raise InputError(
                f"{ROW}: {name} = {number:g}, but {what} = {follows:g}. Correct one, or leave out its column: "
                "--ignore-columns."
            )

    def measured_rates(self, values: Mapping[str, float]) -> tuple[float, float]:
        """Measured tokens [token/s] and operations of the model [FLOP/s] of all chips; not a number if not stated."""
        total, each, flops = map(self.number, RATES)
        tokens = total if total is not None else (each or math.nan) * values["chips"]
        operations = (flops or math.nan) * TERA * values["chips"]
        if self.words.get("flops_basis", "").lower().startswith("hardware"):
            operations /= 1.0 + (BACK_AND_FORTH - 1.0) * values["recompute_full"]
        return tokens, operations


def _fill_step_times(layouts: Measurements, rates: Sequence[tuple[float, float]]) -> list[str]:
    """Put step times in that follow from measured rates, and say so."""
    columns, notes = layouts.columns, list[str]()
    time, tokens = columns["step_time_s"], columns["batch_sequences"] * columns["sequence"]
    per_second, operations = np.array(rates).T
    each = np.ones(len(time))
    if np.any(operations > 0.0):
        with jax.enable_x64(True):
            shapes = {column.name: columns[column.name] for column in SHAPE}
            each = np.asarray(jax.vmap(_published_flops_per_token)(shapes))
    for rate, work, what in (
        (per_second, tokens, "tokens per second"),
        (operations, tokens * each, "FLOP/s that count all attention scores, masked or not"),
    ):
        missing = np.isnan(time) & (rate > 0.0)
        time[missing] = work[missing] / rate[missing]
        if np.any(missing):
            notes.append(f"{counted(int(np.sum(missing)), 'row')}: the step time follows from {what}.")
    return notes


def _published_flops_per_token(shape: Mapping[str, Any]) -> Float[Array, ""]:
    """Operations for a token as papers count them, `6 N + 12 L (a d) s` [Narayanan et al. 2021]."""
    model = Transformer(**shape)
    masked = attention_flops_per_token(model.layers, model.attention_width, model.sequence)
    return model.flops_per_token + masked
