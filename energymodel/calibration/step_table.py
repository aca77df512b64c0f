"""What does a table of training steps say, in the words of public files?

Names of columns are those of `table_columns`; here words become numbers, and what a file says in another way becomes
the columns of `layout_table`: degrees that follow from others, precisions, step times from rates, failed runs.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.cluster_source import cluster_word, measured_cluster
from energymodel.calibration.column_names import UNMODELLED
from energymodel.calibration.csv_table import CsvTable, Problem, listed_problems, read_csv, refuse_problems
from energymodel.calibration.layout_table import INPUTS, MEASURED, SHAPE, Layouts, as_layouts, cell_number, read_row
from energymodel.calibration.model_words import model_preset
from energymodel.calibration.table_columns import (
    AS_WRITTEN,
    ColumnTarget,
    TableChoices,
    column_target,
    matched_columns,
    plain_name,
)
from energymodel.errors import InputError, suggest
from energymodel.performance.workload import Transformer, attention_flops_per_token
from energymodel.scenarios.attention_shape import refuse_state_space
from energymodel.scenarios.files import names
from energymodel.scenarios.layers import SCHEDULE_WORDS
from energymodel.units import counted

VOCABULARY = 51200.0
"""Of a table that does not state it: that of GPT-2, padded as Megatron-LM does."""
NOTHING = ("", "nan", "none", "null", "n/a", "na", "-", "--")
FAILED = (
    "oom",
    "out of memory",
    "out-of-memory",
    "out_of_memory",
    "fail",
    "error",
    "crash",
    "timeout",
    "killed",
    "abort",
    "other",
)
OUT_OF_MEMORY = ("oom", "out of memory", "out-of-memory", "out_of_memory")
PRECISIONS = {"fp4": "fp4", "fp8": "fp8", "tf32": "tf32", "fp32": "fp32", "float32": "fp32"}
SIXTEEN_BITS = ("bf16", "bfloat16", "fp16", "float16", "half", "16")
SHARDING = {"full_shard": "3", "hybrid_shard": "3", "shard_grad_op": "2", "no_shard": "0", "ddp": "0"}
RECOMPUTATION = {
    **dict.fromkeys((*NOTHING, "false", "0", "0.0", "no", "off"), "none"),
    **dict.fromkeys(("true", "1", "1.0", "yes", "on", "uniform", "block"), "full"),
    **dict.fromkeys(("core_attn", "core_attention", "attention"), "selective"),
}
OVERLAPS = tuple(name for name in ("data_overlap", "tensor_overlap") if name in {one.name for one in INPUTS})
"""Columns for which a table may say whether there is any overlap."""
NUMBERS = frozenset(one.name for one in INPUTS)
BACK_AND_FORTH = 4.0 / 3.0  # operations with full recomputation over those without


class StepTable(NamedTuple):
    """A table that was read.

    - `layouts`: its rows as numbers; `kept` are their places in `csv`.
    - `given`: schema's names of the columns that the file states.
    - `texts`: columns of words by name: group, run.
    - `failed`: whether a row states a run that failed.
    - `notes`: what a reader must know.
    """

    csv: CsvTable
    layouts: Layouts
    kept: np.ndarray
    given: frozenset[str]
    texts: Mapping[str, np.ndarray]
    failed: np.ndarray
    notes: tuple[str, ...]

    @property
    def lines(self) -> np.ndarray:
        """Of the rows in the file."""
        return np.asarray(self.csv.lines, int)[self.kept]


def read_step_table(path: Path, choices: TableChoices = AS_WRITTEN, *, default_cluster: str = "") -> StepTable:
    """Read a CSV file of layouts, measured or not.

    **Arguments:**

    - `default_cluster`: word for the cluster of rows that name none; without it such rows are refused.

    **Raises:** `InputError` that names the file, and all unknown columns or all bad rows by line.
    """
    return _step_table(read_csv(path), choices, path.parent, default_cluster)


def step_table(rows: Sequence[Mapping[str, Any]], choices: TableChoices = AS_WRITTEN) -> StepTable:
    """The same of rows as mappings from column to number or text."""
    header = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = tuple(tuple("" if row.get(name) is None else str(row[name]).strip() for name in header) for row in rows)
    lines = tuple(range(2, len(rows) + 2))
    return _step_table(CsvTable("table", header, cells, lines, (), ()), choices, Path())


def _step_table(csv: CsvTable, choices: TableChoices, folder: Path, default_cluster: str = "") -> StepTable:
    filled = [name for at, name in enumerate(csv.header) if any(row[at].lower() not in NOTHING for row in csv.rows)]
    refuse_state_space(sorted(set(filled) - set(choices.ignore)), csv.path)
    places, unused = matched_columns(csv.path, csv.header, choices)
    constants = {_target(name).name: (_target(name), word) for name, word in choices.constants.items()}
    chosen = {csv.header.index(name): word for name, word in choices.where.items()}
    switches = {place: plain_name(name) for place, name in enumerate(csv.header) if plain_name(name) in UNMODELLED}
    switches = {place: name for place, name in switches.items() if csv.header[place] not in choices.ignore}
    table: list[dict[str, float]] = []
    clusters: list[str] = []
    texts: list[dict[str, str]] = []
    kept: list[int] = []
    failed: list[bool] = []
    problems, assumed, rates = list(csv.problems), Counter[str](), []
    taken = 0
    for at, (line, cells) in enumerate(zip(csv.lines, csv.rows, strict=True)):
        if not all(cells[place] == word for place, word in chosen.items()):
            continue
        taken += 1
        where = f"{csv.path}, line {line}"
        try:
            words = {name: _in_our_unit(word, target) for name, (target, word) in constants.items()}
            words |= {target.name: _in_our_unit(cells[place], target) for place, target in places.items()}
            _check_modelled({name: cells[place] for place, name in switches.items()}, where)
            row = _Row(words, where, assumed)
            row.check_rates()
            schema = row.schema()
            if default_cluster:
                schema["cluster"] = measured_cluster(words, folder, default_cluster)
            elif words.get("cluster", "") in choices.clusters:
                schema["cluster"] = words["cluster"]
            else:
                schema["cluster"] = cluster_word(words, folder, choices.cluster, where, assumed)
        except InputError as error:
            problems.append(Problem(line, str(error).removeprefix(where).lstrip(",: ")))
            continue
        values = read_row(schema, where, line)
        if isinstance(values, Problem):
            problems.append(values)
            continue
        table.append(values)
        rates.append(row.measured_rates(values))
        clusters.append(str(schema["cluster"]))
        texts.append({name: words.get(name, "") for name in ("group", "run")})
        kept.append(at)
        failed.append(row.failed)
    notes = [*csv.notes, *(f"{counted(count, 'row')}: {what}" for what, count in assumed.items())]
    if choices.where and not taken:
        shown = ", ".join(f"{name}={word}" for name, word in choices.where.items())
        raise InputError(f"{csv.path}: no row has {shown}. Check the words in these columns.")
    if not choices.skip_bad_rows:
        refuse_problems(csv.path, problems, taken + len(csv.problems))
    elif problems:
        first, *others = listed_problems(sorted(problems))
        rows = counted(taken + len(csv.problems), "row")
        count = f"Left out because they cannot be read: {len(problems):,} of {rows}"
        notes.append(f"{count}. {first}" + (" And for other reasons." if others else ""))
    if not table:
        shown = f"{len(problems)} rows cannot be read, the first: {min(problems).reason}" if problems else "no rows."
        raise InputError(f"{csv.path}: {shown} Give a header line and one line for each layout.")
    if unused:
        notes.append(f"Columns that are not used: {', '.join(unused)}.")
    layouts = as_layouts(table, clusters)
    given = frozenset((*(target.name for target in places.values()), *constants))
    notes += _fill_step_times(layouts, rates)
    words = {name: np.array([row[name] for row in texts]) for name in ("group", "run") if name in given}
    return StepTable(csv, layouts, np.array(kept), given, words, np.array(failed), tuple(notes))


def _target(name: str) -> ColumnTarget:
    target = column_target(name)
    if target is None:
        raise InputError(f'--column {name}: unknown column "{name}".')
    return target


def _in_our_unit(word: str, target: ColumnTarget) -> str:
    if target.factor == 1.0:
        return word
    try:
        return repr(float(word) * target.factor)
    except ValueError:
        return word


def _check_modelled(words: Mapping[str, str], where: str) -> None:
    for name, word in words.items():
        if word.lower() not in UNMODELLED[name]:
            what = "state-space layers are" if name == "hybrid" else "this is"
            raise InputError(
                f"{where}: {name} = {word}: {what} not modelled. Leave the row out, or take it for one without: "
                f"--ignore-columns {name}."
            )


def _says_nothing(name: str, word: str) -> bool:
    """Whether a cell is as good as empty; `nan` is in measured columns only, elsewhere it is no number."""
    word = word.lower()
    return word in NOTHING and (word != "nan" or name not in NUMBERS)


class _Row:
    """One row: what its words say in the columns of the schema."""

    def __init__(self, words: Mapping[str, str], where: str, assumed: Counter[str]) -> None:
        self.words = {name: word for name, word in words.items() if not _says_nothing(name, word)}
        self.blank_recomputation = words.get("recomputation", "")
        self.where = where
        self.assumed = assumed
        self.failed = False

    def number(self, name: str) -> float | None:
        """A number of the row, if it states it."""
        word = self.words.get(name)
        return None if word is None else cell_number(word, f"{self.where}: {name}")

    def check_rates(self) -> None:
        """Refuse measured rates below zero."""
        for name in ("tokens_per_s", "tokens_per_s_per_chip", "model_flops_per_chip"):
            if (rate := self.number(name) or 0.0) < 0.0:
                raise InputError(f"{self.where}: {name} = {rate:g} cannot be; a measured rate is above 0.")

    def product(self, *names: str) -> float:
        """Of numbers that are 1 where they are not stated."""
        return math.prod(one if (one := self.number(name)) is not None else 1.0 for name in names)

    def schema(self) -> dict[str, Any]:
        """The row in the columns of `layout_table`."""
        self._read_outcome()
        found: dict[str, Any] = {
            one.name: self.words[one.name] for one in (*INPUTS, *MEASURED) if one.name in self.words
        }
        self._read_shape(found)
        self._read_sharding(found)
        self._read_precision(found)
        if "schedule" in self.words:
            self._read_schedule(found)
        for name in OVERLAPS:
            # What is switched on hides the share that the cluster has.
            if self.number(f"{name}_switch") == 0.0:
                found.setdefault(name, 0.0)
        self._read_counts(found)
        return found

    def _read_outcome(self) -> None:
        """A run that failed has no step time."""
        for name in ("status", "step_time_s", "memory_b", "out_of_memory"):
            word = self.words.get(name, "").lower()
            if name == "out_of_memory":
                full = word not in ("", "0") and cell_number(word, f"{self.where}: {name}") > 0.0
            else:
                full = any(part in word for part in OUT_OF_MEMORY)
            if full or any(word.startswith(part) for part in FAILED):
                self.failed = True
                if full:
                    self.words["out_of_memory"] = "1"
                if name in ("step_time_s", "memory_b"):
                    del self.words[name]
        if self.failed:
            for name in ("step_time_s", "tokens_per_s", "tokens_per_s_per_chip", "model_flops_per_chip"):
                self.words.pop(name, None)

    def _read_shape(self, found: dict[str, Any]) -> None:
        experts = self.number("experts") or 1.0
        inner = self.number("expert_feed_forward")
        if inner is not None and experts > 1.0:
            if "feed_forward" in found and "dense_layers" in found:
                found.setdefault("dense_feed_forward", found["feed_forward"])
            found["feed_forward"] = inner
        shared = self.number("shared_expert_feed_forward")
        if shared is not None:
            width = cell_number(found.get("feed_forward", shared), f"{self.where}: feed_forward")
            found.setdefault("shared_experts", shared / width)
        own = all(name in found for name in ("layers", "hidden", "heads"))
        if "model" in self.words:
            word = self.words["model"]
            preset = model_preset(word)
            if preset is not None and not own:
                found["model"] = preset
            elif not own:
                raise InputError(
                    f'{self.where}: model "{word}" is no preset, and the row does not state layers, hidden and heads. '
                    f"{suggest(word.lower(), names('models'))}"
                )
        if own and "vocabulary" not in found:
            found["vocabulary"] = VOCABULARY
            self.assumed[
                f"vocabulary is not stated: {VOCABULARY:,.0f} tokens (--column vocabulary=N for another)."
            ] += 1

    def _read_sharding(self, found: dict[str, Any]) -> None:
        stage = self.words.get("zero")
        sharding = self.words.get("sharding")
        if stage is None and sharding is not None:
            stage = SHARDING.get(sharding.lower())
            if stage is None:
                raise InputError(f'{self.where}: sharding: unknown "{sharding}". {suggest(sharding.lower(), SHARDING)}')
        if stage is None and (self.number("fsdp") or 0.0) > 0.0:
            stage = "3"
        if stage is not None:
            found["zero"] = stage.lower().removeprefix("zero").lstrip("-_ ") or stage
        if self.blank_recomputation or "recomputation" in self.words:
            word = self.words.get("recomputation", self.blank_recomputation).lower()
            found["recomputation"] = RECOMPUTATION.get(word) or word.split("+")[0].split(",")[0].strip()

    def _read_precision(self, found: dict[str, Any]) -> None:
        word = self.words.get("precision", "").lower()
        if not word:
            return
        name = next((ours for part, ours in PRECISIONS.items() if part in word), None)
        if name is not None:
            found.setdefault(name, 1.0)
        elif not any(part in word for part in SIXTEEN_BITS):
            known = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "tf32", "fp32")
            raise InputError(f'{self.where}: precision: unknown "{word}". {suggest(word, known)}')

    def _read_schedule(self, found: dict[str, Any]) -> None:
        word = self.words["schedule"].lower()
        if word not in SCHEDULE_WORDS:
            raise InputError(f'{self.where}: schedule: unknown "{word}". {suggest(word, SCHEDULE_WORDS)}')
        if SCHEDULE_WORDS[word]:
            found[SCHEDULE_WORDS[word]] = 1.0

    def _read_counts(self, found: dict[str, Any]) -> None:
        """Chips, batch and virtual stages that follow from other counts, or must agree with them."""
        per_stage = self.number("layers_per_virtual_stage")
        layers = self.number("layers")
        if per_stage and layers and "virtual_stages" not in found:
            found["virtual_stages"] = max(1.0, layers / (self.product("pipeline") * per_stage))
        data, ranks = self.number("data"), self.product("tensor", "pipeline", "context")
        if data is not None:
            self._follow(found, "chips", data * ranks, "data x tensor x pipeline x context")
        sequence, tokens = self.number("sequence"), self.number("batch_tokens")
        if tokens is not None and sequence:
            self._follow(found, "batch_sequences", tokens / sequence, "batch_tokens / sequence")
        steps, chips = self.number("grad_accumulation"), self.number("chips")
        if steps is not None and (data is not None or chips is not None):
            replicas = data if data is not None else (chips or 0.0) / ranks
            follows = steps * replicas * self.product("microbatch")
            stated = self.number("batch_sequences")
            if stated is not None and sequence and math.isclose(stated, follows * sequence, rel_tol=1e-3):
                found["batch_sequences"] = follows
                self.assumed["the batch is stated in tokens: read so."] += 1
            else:
                self._follow(found, "batch_sequences", follows, "data x microbatch x grad_accumulation")

    def _follow(self, found: dict[str, Any], name: str, follows: float, what: str) -> None:
        stated = self.number(name)
        if stated is None:
            found[name] = follows
        elif not math.isclose(stated, follows, rel_tol=1e-2):
            raise InputError(
                f"{self.where}: {name} = {stated:g}, but {what} = {follows:g}. Correct one, or leave out its column: "
                "--ignore-columns."
            )

    def measured_rates(self, values: Mapping[str, float]) -> tuple[float, float]:
        """Measured tokens [token/s] and operations of the model [FLOP/s] of all chips; not a number if not stated."""
        whole, each, flops = (
            self.number(one) for one in ("tokens_per_s", "tokens_per_s_per_chip", "model_flops_per_chip")
        )
        tokens = whole if whole is not None else (each or math.nan) * values["chips"]
        operations = (flops or math.nan) * values["chips"]
        if self.words.get("flops_basis", "").lower().startswith("hardware"):
            operations /= 1.0 + (BACK_AND_FORTH - 1.0) * values["recompute_full"]
        return tokens, operations


def _fill_step_times(layouts: Layouts, rates: Sequence[tuple[float, float]]) -> list[str]:
    """Put step times in that follow from measured rates, and say so."""
    columns = layouts.columns
    time = columns["step_time_s"]
    tokens = columns["batch_sequences"] * columns["sequence"]
    per_second, operations = np.array(rates).T
    notes = []
    from_tokens = np.isnan(time) & (per_second > 0.0)
    time[from_tokens] = tokens[from_tokens] / per_second[from_tokens]
    if np.any(from_tokens):
        notes.append(f"{counted(int(np.sum(from_tokens)), 'row')}: the step time follows from tokens per second.")
    from_flops = np.isnan(time) & (operations > 0.0)
    if np.any(from_flops):
        with jax.enable_x64(True):
            shapes = {one.name: columns[one.name][from_flops] for one in SHAPE}
            each = jax.vmap(_published_flops_per_token)(shapes)
        time[from_flops] = tokens[from_flops] * np.asarray(each) / operations[from_flops]
        rows = counted(int(np.sum(from_flops)), "row")
        notes.append(f"{rows}: the step time follows from FLOP/s that count all attention scores, masked or not.")
    return notes


def _published_flops_per_token(shape: Mapping[str, Any]) -> Float[Array, ""]:
    """Operations for a token as papers count them, `6 N + 12 L (a d) s` [Narayanan et al. 2021]."""
    model = Transformer(**shape)
    masked = attention_flops_per_token(model.layers, model.attention_width, model.sequence)
    return model.flops_per_token + masked
