"""Under which names may a table of training steps have its columns, and in which units?

`predict` and `calibrate step-time` read the same columns. A name is compared without regard to case, and `-` and blanks
count as `_`. What a step depends on stands in `layout_table.INPUTS`; the names here are those of public files for the
same things, for what was measured, and for notes that no step depends on.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from energymodel.calibration.layout_table import INPUTS, MEASURED
from energymodel.errors import InputError
from energymodel.presets.renamed import current_name

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_layers", "n_layers", "n_layer", "num_hidden_layers"),
    "hidden": ("hidden_size", "d_model", "n_embd"),
    "heads": ("num_heads", "n_heads", "n_head", "num_attention_heads", "attention_heads"),
    "kv_heads": ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "kv_groups", "num_query_groups"),
    "head_size": ("head_dim", "kv_channels"),
    "feed_forward": ("ffn_hidden_size", "ffn", "intermediate_size", "ffn_size"),
    "gated": ("swiglu",),
    "vocabulary": ("vocab_size", "vocab", "padded_vocab_size"),
    "sequence": ("seq_len_tokens", "seq_len", "seq_length", "sequence_length", "seq", "seqlen"),
    "tied": ("tie_word_embeddings", "tied_embeddings"),
    "experts": ("num_experts", "n_experts", "num_moe_experts"),
    "active_experts": ("topk", "top_k", "moe_router_topk", "experts_per_token"),
    "tensor": ("tp", "tp_size", "tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size"),
    "pipeline": ("pp", "pp_size", "pipeline_parallel", "pipeline_parallel_size", "pipeline_model_parallel_size"),
    "virtual_stages": ("vp", "vpp", "virtual_pipeline", "interleaved_chunks", "chunks"),
    "context": ("cp", "cp_size", "context_parallel", "context_parallel_size"),
    "expert": ("ep", "ep_size", "expert_parallel", "expert_parallel_size", "expert_model_parallel_size"),
    "data": ("dp", "dp_size", "data_parallel", "data_parallel_size"),
    "microbatch": ("microbatch_sequences", "micro_batch", "micro_batch_size", "microbatch_size", "mbs"),
    "grad_accumulation": ("gradient_accumulation", "gradient_accumulation_steps", "grad_acc", "num_microbatches"),
    "sequence_parallel": ("sp", "sequence_parallelism"),
    "shard_optimizer": ("distributed_optimizer", "use_distributed_optimizer"),
    "chips": (
        "n_gpu",
        "n_gpus",
        "num_gpus",
        "gpus",
        "n_gpus_recipe",
        "ngpus",
        "n_accelerators",
        "accelerators",
        "world_size",
    ),
    "batch_sequences": (
        *("global_batch_sequences", "global_batch_size", "global_batch", "gbs", "batch_size"),
        "train_batch_size",
    ),
    "batch_tokens": ("global_batch_tokens", "tokens_per_step"),
    "layers_per_virtual_stage": ("num_layers_per_virtual_pipeline_stage",),
    "expert_feed_forward": ("moe_ffn", "moe_ffn_hidden_size", "moe_intermediate_size"),
    "shared_expert_feed_forward": ("shared_expert", "moe_shared_expert_intermediate_size"),
    "zero": ("zero_stage",),
    "fsdp": (),
    "sharding": ("sharding_strategy",),
    "recomputation": ("recompute", "activation_checkpointing", "recompute_granularity"),
    "precision": ("dtype", "data_type"),
    "schedule": ("pipeline_schedule",),
    "cluster": (),
    "accelerator": ("gpu", "hardware", "device", "platform", "gpu_type", "accelerator_type", "gpu_model"),
    "framework": ("software",),
    "node": (),
    "network": (),
    "model": ("model_name",),
    "group": (),
    "run": ("job_id",),
    "status": ("result", "outcome"),
    "out_of_memory": ("oom",),
    "flops_basis": (),
    "tokens_per_s": ("tokens_per_second", "throughput_tokens_per_s"),
    "tokens_per_s_per_chip": tuple(
        f"tokens_per_{second}_per_{chip}"
        for second in ("s", "second", "sec")
        for chip in ("gpu", "accelerator", "device", "chip")
    ),
}
"""Names by which public files call the columns of a table."""
TIMES = ("step_time", "iteration_time", "iter_time", "step", "iteration", "iteration_time_median", "step_time_median")
MEMORIES = (
    *("memory", "max_memory", "peak_memory", "memory_reserved", "peak_allocated", "max_memory_allocated"),
    *("peak_reserved", "measured_memory", "max_memory_reserved"),
)
RATES = tuple(
    f"{prefix}{flops}{suffix}"
    for prefix in ("", "model_")
    for flops in ("tflops", "tflop_per_s", "tflop_s")
    for suffix in ("_per_gpu", "_per_accelerator", "_per_chip", "_per_device", "")
)
SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0}
BYTES = {"b": 1.0, "bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12} | {
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
}
MEASUREMENTS = {"step_time_s": (TIMES, SECONDS), "memory_b": (MEMORIES, BYTES)}
"""Measured columns that are read in several units, which their names end with."""
NOTES = frozenset(
    [
        "action",
        "active_params",
        "card",
        "case",
        "commit",
        "config",
        "dataset",
        "date",
        "environment",
        "expected",
        "family",
        "final_loss",
        "flops_per_gpu",
        "gpus_per_node",
        "hf_id",
        "hfu",
        "hfu_frac",
        "id",
        "index",
        "initial_loss",
        "item",
        "last_verified",
        "link",
        "loss",
        "loss_first",
        "loss_last",
        "mfu",
        "mfu_conflict",
        "mfu_frac",
        "mfu_measured",
        "mfu_percent",
        "mfu_reported_percent",
        "n_gpus_recipe",
        "n_nodes",
        "n_times",
        "nnodes",
        "nodes",
        "notes",
        "note",
        "params",
        "params_reported",
        "params_reported_billion",
        "params_transformer_12lh2",
        "path",
        "peak_tflops_implied_by_mfu",
        "power_limit_w",
        "hardware_tflops_per_gpu",
        "hardware_tflops_per_accelerator",
        "memory_allocated_gib",
        "memory_allocated_gb",
        "iteration_time_p10_s",
        "iteration_time_p90_s",
        "model_tflops_per_gpu_derived",
        "model_tflops_per_gpu_derived_no_vocab",
        "tokens_per_s_derived",
        "utilisation_frac",
        "utilization_frac",
        "allreduce_bytes_per_s",
        "allgather_bytes_per_s",
        "reducescatter_bytes_per_s",
        "allreduce_intranode_bytes_per_s",
        "recipe",
        "reference",
        "row",
        "run_after_pp_fix",
        "section",
        "set",
        "source",
        "source_commit",
        "source_file",
        "source_path",
        "source_repo",
        "steps_logged",
        "study",
        "suspect_copy",
        "task",
        "transcribed_from",
        "url",
        "validated",
        "variant",
        "verification",
        "version",
        "out_of_memory_probability",
    ]
)
"""Columns about a run that no step depends on, or that follow from others."""
UNMODELLED: Mapping[str, frozenset[str]] = {
    "etp": frozenset({"", "1", "1.0"}),
    "expert_tensor": frozenset({"", "1", "1.0"}),
    "mla": frozenset({"", "0", "0.0", "false", "no"}),
    "overlap_grad": frozenset({"", "0", "0.0", "false", "no", "1", "1.0", "true", "yes"}),
    "tp_comm_overlap": frozenset({"", "0", "0.0", "false", "no", "1", "1.0", "true", "yes"}),
    "hybrid": frozenset({"", "0", "0.0", "false", "no"}),
}
"""Columns of public files for what is not told apart, and the words that a row may have there."""
PREDICTED = "predicted_"
"""Begins the name of a column that `predict` appends."""


class ColumnTarget(NamedTuple):
    """What a column of a file becomes: a name in `OTHER_NAMES` or of the schema ("" for notes), and its unit."""

    name: str
    factor: float = 1.0


class TableChoices(NamedTuple):
    """How a person wants a table to be read.

    - `rename`: their name of a column, and ours (with another unit where it has one, as in `step_time_ms`).
    - `constants`: columns that the table lacks, with one word for all rows.
    - `ignore`: columns to be left out; "all" stands for all that are not known.
    - `where`: words that a row must have in some columns to be taken.
    - `skip_bad_rows`: leave out rows that cannot be read instead of refusing the table.
    - `cluster`: preset or file of the cluster of all rows.
    - `clusters`: names of clusters beside the presets.
    """

    rename: Mapping[str, str] = {}
    constants: Mapping[str, str] = {}
    ignore: Sequence[str] = ()
    where: Mapping[str, str] = {}
    skip_bad_rows: bool = False
    cluster: str = ""
    clusters: Sequence[str] = ()


AS_WRITTEN = TableChoices()
"""Nothing renamed, ignored or left out."""


def plain_name(name: str) -> str:
    """A name of a column as names are compared."""
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


def _targets() -> dict[str, ColumnTarget]:
    found = {name: ColumnTarget("") for name in (*NOTES, *UNMODELLED)}
    for name, others in OTHER_NAMES.items():
        found |= {other: ColumnTarget(name) for other in (name, *others)}
    for name, (stems, units) in MEASUREMENTS.items():
        found |= {f"{stem}_{unit}": ColumnTarget(name, factor) for stem in stems for unit, factor in units.items()}
    found |= {name: ColumnTarget("model_flops_per_chip", 1e12) for name in RATES}
    # The schema's own names win, so that a column that the model learns to use is read from then on.
    return found | {one.name: ColumnTarget(one.name) for one in (*INPUTS, *MEASURED)}


TARGETS = _targets()


def column_target(name: str) -> ColumnTarget | None:
    """What a column of this name becomes, if it is known."""
    plain = plain_name(name)
    if plain.startswith(PREDICTED):
        return ColumnTarget("")
    return TARGETS.get(plain) or TARGETS.get(current_name(plain))


def nearest(name: str) -> str:
    """A sentence that names the nearest known column, or the unit that is missing."""
    plain = plain_name(name)
    for stems, units in MEASUREMENTS.values():
        if plain in stems:
            return f'Its unit is missing: call it "{plain}_{next(iter(units))}".'
    near = difflib.get_close_matches(plain, TARGETS, n=1, cutoff=0.5)
    if not near:
        near = [one for one in TARGETS if len(plain) > 2 and (plain in one or (len(one) > 3 and one in plain))][:1]
    if not near:
        return "No known column is near."
    known = TARGETS[near[0]]
    means = f", which means {known.name}" if known.name and known.name != near[0] else ""
    return f'Did you mean "{near[0]}"{means}?'


def matched_columns(
    path: str, header: Sequence[str], choices: TableChoices
) -> tuple[dict[int, ColumnTarget], tuple[str, ...]]:
    """What each column of a file becomes, by its place, and the names of the columns that are not used.

    **Raises:** `InputError` that names every unknown column with its nearest known one, and two columns of one meaning.
    """
    _check_choices(path, header, choices)
    ignored = {plain_name(name) for name in choices.ignore}
    fixed = {target.name for name in choices.constants if (target := column_target(name))}
    places: dict[int, ColumnTarget] = {}
    unused: list[str] = []
    unknown: list[str] = []
    for place, name in enumerate(header):
        if not name or plain_name(name) in ignored:
            unused += [name] if name else []
            continue
        target = column_target(choices.rename.get(name, name))
        if target is None:
            unknown.append(name)
        elif target.name and target.name not in fixed:
            places[place] = target
        else:
            unused.append(name)
    if unknown and "all" not in ignored:
        listed = [f'"{name}": {nearest(name)}' for name in unknown]
        advice = (
            "Correct the name, say what it means with --rename THEIRS=OURS, or leave it out with --ignore-columns NAME "
            "(all: every unknown one)."
        )
        if len(unknown) == 1:
            raise InputError(f"{path}, line 1: unknown column {listed[0]} {advice}")
        raise InputError("\n  ".join((f"{path}, line 1: {len(unknown)} unknown columns. {advice}", *listed)))
    _check_doubles(path, header, places)
    return places, (*unused, *unknown)


def _check_choices(path: str, header: Sequence[str], choices: TableChoices) -> None:
    known = {plain_name(name) for name in header}
    for theirs, ours in choices.rename.items():
        if theirs not in header:
            raise InputError(f'{path}, line 1: --rename: there is no column "{theirs}". {_near_header(theirs, header)}')
        if column_target(ours) is None:
            raise InputError(f'--rename {theirs}={ours}: unknown column "{ours}". {nearest(ours)}')
    for name in choices.constants:
        target = column_target(name)
        if target is None or not target.name:
            raise InputError(f'--column {name}: unknown column "{name}". {nearest(name)}')
    for name in choices.ignore:
        if name != "all" and plain_name(name) not in known:
            raise InputError(
                f'{path}, line 1: --ignore-columns: there is no column "{name}". {_near_header(name, header)}'
            )
    for name in choices.where:
        if name not in header:
            raise InputError(
                f'{path}, line 1: there is no column "{name}" to choose rows by. {_near_header(name, header)}'
            )


def _near_header(name: str, header: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, header, n=1, cutoff=0.4)
    return f'Did you mean "{near[0]}"?' if near else f"The file has {', '.join(header[:12])}."


def _check_doubles(path: str, header: Sequence[str], places: Mapping[int, ColumnTarget]) -> None:
    by_name: dict[str, str] = {}
    for place, target in places.items():
        first = by_name.setdefault(target.name, header[place])
        if first != header[place]:
            raise InputError(
                f'{path}, line 1: columns "{first}" and "{header[place]}" both mean {target.name}. Leave one out: '
                f'--ignore-columns "{header[place]}".'
            )


def column_lines() -> list[str]:
    """A line for each column that is read: name, unit, default, meaning, and the other names for it."""
    words = {
        "cluster": "preset, or a file that `calibrate step-time -o` wrote; relative to the table's folder",
        "accelerator": "preset or the maker's name; with `framework` in the place of a cluster that was fitted",
        "framework": "software preset or its usual name",
        "node": "preset; by default the usual one of the accelerator",
        "network": "preset; by default the usual one of the accelerator",
        "model": "preset, which gives the shape; any word where the columns of the shape are there",
        "data": "data-parallel degree; gives `chips`, and must agree with it",
        "grad_accumulation": "micro-batches of a data-parallel rank; gives `batch_sequences`, and must agree with it",
        "batch_tokens": "global batch in tokens, in the place of `batch_sequences`",
        "layers_per_virtual_stage": "gives `virtual_stages`",
        "expert_feed_forward": "inner width of an expert, in the place of `feed_forward`",
        "shared_expert_feed_forward": "inner width of all shared experts, gives `shared_experts`",
        "zero": "ZeRO stage, 0 to 3",
        "fsdp": "1 for fully sharded parameters, ZeRO stage 3",
        "sharding": "FULL_SHARD, SHARD_GRAD_OP or NO_SHARD",
        "recomputation": "none, selective or full",
        "precision": "bf16, fp16, fp8, mxfp8, nvfp4, tf32 or fp32: gives the shares `fp8`, `fp4`, `tf32`, `fp32`",
        "schedule": "1f1b, gpipe, zb-h1, zb-h2, zb-v or dualpipe",
        "status": "ok, OOM or failed",
        "tokens_per_s": "measured; gives the step time where a table has none",
        "tokens_per_s_per_chip": "measured; gives the step time where a table has none",
        "model_flops_per_chip": "measured rate, in TFLOP/s; gives the step time where a table has nothing else",
        "flops_basis": "model or hardware: whether that rate counts recomputation",
        "group": "what is held out and resampled together",
        "run": "number of a repeated measurement",
    }
    lines = []
    for one in (*INPUTS, *MEASURED):
        default = "" if one.default != one.default else f", default {one.default:g}"
        others = list(OTHER_NAMES.get(one.name, ()))
        if one.name in MEASUREMENTS:
            stems, units = MEASUREMENTS[one.name]
            others = [f"{', '.join(stems)} with the unit {', '.join(units)} at the end"]
        lines.append(f"{one.name} [{one.unit}{default}]: {one.meaning}" + _also(others))
    others = {**OTHER_NAMES, "model_flops_per_chip": RATES[:4]}
    lines += [f"{name} [text]: {meaning}" + _also(others.get(name, ())) for name, meaning in words.items()]
    return lines


def _also(others: Sequence[str]) -> str:
    return f"; also called {', '.join(others)}" if others else ""
