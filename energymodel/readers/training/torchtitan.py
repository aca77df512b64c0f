"""What does a torchtitan configuration say: TOML of v0.1 and v0.2, or the JSON that newer versions save?"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import Shape, TrainingConfig, settle
from energymodel.readers.training.keys import Keys
from energymodel.readers.training.names import preset_of
from energymodel.readers.training.torchtitan_saved import saved_adapters, saved_recomputation, saved_shape
from energymodel.units import whole_number

SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("1f1b", 2),
    "loopedbfs": ("gpipe", 2),
    "interleavedzerobubble": ("zb-h1", 2),
    "zbvzerobubble": ("zb-v", 2),
    "dualpipev": ("dualpipe", 2),
}
"""Pipeline schedules of torch.distributed.pipelining: our word and the stages of a rank that torchtitan gives them."""
PRESET_LINE = re.compile(r"preset for (\d{1,6}) ?x? ?([A-Za-z]{0,3}\d{1,4}[A-Za-z]{0,2})? ?GPUs", re.IGNORECASE)
VARIANT = re.compile(r"_(flex|varlen|sdpa)(_attn)?$")
DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")
SECTIONS = ("training", "parallelism", "activation_checkpoint", "model", "optimizer", "compile", "experimental")


@cache
def _known() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(Path(__file__).with_name("torchtitan_models.toml").read_text(encoding="utf-8"))


def flavor_shape(name: str, flavor: str) -> Shape | None:
    """The shape of a model that torchtitan knows by name and flavor; None for others."""
    family = _known().get(name, {})
    plain = {key.lower(): key for key in family if key != "all"}
    key = plain.get(VARIANT.sub("", flavor).lower())
    if key is None:
        return None
    return {
        word: value if isinstance(value, str) else float(value) for word, value in (family["all"] | family[key]).items()
    }


def header_of(text: str) -> str:
    """Comments before the first key, one of which says for how many accelerators the file is meant."""
    lines = []
    for line in text.splitlines()[:40]:
        if line.strip() and not line.lstrip().startswith("#"):
            break
        lines.append(line)
    return "\n".join(lines)


def read_torchtitan(table: dict[str, Any], where: str, kind: str = "torchtitan") -> TrainingConfig:
    """The run of a job configuration."""
    header = str(table.pop("#", ""))
    keys = Keys(_with_degrees(table), where)
    training, parallel, saved = (keys.table(name) for name in SECTIONS[:3])
    notes: list[str] = []
    name, shape, tuned = _model(keys, notes)
    tensor = parallel.whole("tensor_parallel_degree", default=1) or 1
    pipeline = parallel.whole("pipeline_parallel_degree", default=1) or 1
    experimental = keys.table("experimental")
    pipeline = max(pipeline, experimental.whole("pipeline_parallel_degree", default=1) or 1)
    context = parallel.whole("context_parallel_degree", default=1) or 1
    context = max(context, experimental.whole("context_parallel_degree", default=1) or 1)
    copies = parallel.whole("data_parallel_replicate_degree", default=1) or 1
    shard = parallel.whole("data_parallel_shard_degree", lowest=-1, default=-1)
    if shard == 0:
        raise parallel.refuse(
            "data_parallel_shard_degree", 0, "a degree of at least 1, or -1 for the chips that are left"
        )
    data = None if shard == -1 else copies * (shard or 1)
    stage = _stage(parallel, shard, copies, context, pipeline, notes)
    chips, accelerator = _header(header, notes)
    if chips is not None and data is not None and data * tensor * pipeline * context != chips:
        notes.append(f"a comment says {chips} accelerators, the degrees make {data * tensor * pipeline * context}")
        chips = None
    local = training.whole("local_batch_size", "batch_size", default=8) or 8
    micro = local
    schedule, interleave = "1f1b", 1
    pieces = parallel.whole("pipeline_parallel_microbatches")
    if pipeline > 1:
        schedule, interleave = _schedule(parallel, shape, pipeline, notes)
        micro = parallel.whole("pipeline_parallel_microbatch_size", default=1) or 1
        micro = max(local // pieces, 1) if pieces else micro
        if local % micro:
            raise InputError(
                f"{training.path('local_batch_size')} is {local}, no multiple of pipeline_parallel_microbatch_size "
                f"{micro}; correct one of them."
            )
    else:
        parallel.skip(
            "pipeline_parallel_schedule", "pipeline_parallel_microbatch_size", "pipeline_parallel_split_points"
        )
        parallel.skip("pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers")
    batch = training.whole("global_batch_size", lowest=-1)
    batch = None if batch in (-1, 0) else batch
    values = keys.values
    plain = saved_recomputation(values["activation_checkpoint"]) if "activation_checkpoint" in values else None
    mode, layers = (plain, None) if plain else _recomputation(saved, shape, notes)
    precision, recipe, adapters = _precision(keys, training)
    overlaps = ("data",)
    if parallel.on("enable_async_tensor_parallel") or keys.table("compile").on("enable_async_tensor_parallel"):
        overlaps = (*overlaps, "tensor")
    experts = parallel.whole("expert_parallel_degree", default=1)
    parallel.skip("disable_loss_parallel", "enable_compiled_autograd")
    keys.skip(
        "job", "compile", "debug", "comm", "experimental", "validation", "validator", "fault_tolerance", "tokenizer"
    )
    keys.skip("dataloader", "hf_assets_path", "loss", "profiler", "override")
    parallel.skip("spmd_backend", "context_parallel_load_balancer", "enable_sequence_parallel")
    graphs = training.flag("disable_cuda_graphs")
    training.skip("compile", "dataset", "dataset_path", "max_norm", "gc_freq", "gc_debug", "deterministic", "seed")
    saved.skip("early_stop", "preserve_rng_state", "determinism_check", "debug")
    config = TrainingConfig(
        kind=kind,
        model_name=name,
        preset=preset_of(name),
        model=shape,
        chips=chips,
        accelerator=accelerator,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        interleave=interleave,
        context=context,
        context_collective="all_to_all"
        if parallel.values.get("context_parallel_rotate_method") == "alltoall"
        else None,
        expert=experts,
        expert_tensor=parallel.whole("expert_tensor_parallel_degree", default=1),
        micro_batch=micro,
        accumulation=None if batch else local // micro,
        batch_sequences=batch,
        sequence=training.whole("seq_len", default=2048),
        precision=precision,
        precision_recipe=recipe,
        recomputation=mode,
        recomputed_layers=layers,
        sharding=stage,
        shard_size=(shard or 1) * context if copies > 1 and shard not in (-1, 1) else None,
        sequence_parallel=tensor > 1 and bool(parallel.flag("enable_sequence_parallel", default=True)),
        optimizer=_optimizer(keys.table("optimizer")),
        schedule=schedule,
        overlaps=overlaps,
        steps=training.whole("steps", default=10000),
        offload=("optimizer", "parameters") if training.on("enable_cpu_offload") else (),
        adapters=adapters or tuned,
        cuda_graphs=None if graphs is None else not graphs,
        notes=tuple(notes),
        ignored=keys.unread(),
    )
    return settle(config)


def _with_degrees(table: dict[str, Any]) -> dict[str, Any]:
    """The table with the degrees that files before v0.1 have in `training` where later ones have them."""
    training, parallel = table.get("training"), table.get("parallelism")
    if not isinstance(training, dict) or parallel is not None:
        return table
    moved = {key: value for key, value in training.items() if key.endswith("_parallel_degree") or key in DEGREES}
    left = {key: value for key, value in training.items() if key not in moved}
    return table | {"training": left, "parallelism": moved} if moved else table


def _model(keys: Keys, notes: list[str]) -> tuple[str | None, Shape, str | None]:
    """Name and shape of the model, and its adapters where its layers are saved with the run."""
    section = keys.table("model_spec") if "model_spec" in keys else keys.table("model")
    name, flavor = section.word("name", default="llama3"), section.word("flavor", default="debugmodel")
    section.skip("print_after_conversion", "tokenizer_path", "hf_assets_path", "converters", "model", "norm_type")
    keys.skip("model_spec.model")
    name, flavor = name or "", flavor or ""
    shape = flavor_shape(name, flavor)
    saved = section.values.get("model")
    told = saved_shape(saved)
    if told and any(told[word] != (shape or {}).get(word) for word in ("layers", "hidden", "vocabulary")):
        shape = told
    if isinstance(saved, dict) and "model_converters" not in keys:
        notes.append("such a file does not tell fp8 from bf16; set plan.layout.fp8 to 1 if products are in fp8")
    if shape is None:
        notes.append(f"the shape of {name} {flavor} is not known here; give the model")
    return f"{name} {flavor}", shape or {}, saved_adapters(saved)


def _optimizer(section: Keys) -> str:
    """Name of the optimizer; of the first group of parameters in files that have groups."""
    groups = section.raw("param_groups")
    first = groups[0] if isinstance(groups, list) and groups and isinstance(groups[0], dict) else {}
    named = first.get("optimizer_name")
    section.skip("implementation", "optimizer_factory_kwargs_by_name")
    return named[:40].lower() if isinstance(named, str) else (section.word("name", default="AdamW") or "").lower()


def _stage(parallel: Keys, shard: int | None, copies: int, context: int, pipeline: int, notes: list[str]) -> int:
    """ZeRO stage of fully_shard, or 0 where the model is replicated."""
    keep = parallel.word("fsdp_reshard_after_forward", known=("default", "always", "never"), default="default")
    if shard == 1 and context == 1:
        return 0
    if keep == "never" or (keep == "default" and pipeline > 1):
        notes.append("parameters stay gathered between forward and backward pass, as in ZeRO stage 2")
        return 2
    return 3


def _header(header: str, notes: list[str]) -> tuple[int | None, str | None]:
    """Accelerators of the comment at the head of a file."""
    match = PRESET_LINE.search(header)
    if match is None or int(match[1]) < 1:
        return None, None
    notes.append(f"{match[1]} accelerators: from a comment of the file, no key of it")
    return int(match[1]), match[2]


def _schedule(parallel: Keys, shape: Shape, pipeline: int, notes: list[str]) -> tuple[str, int]:
    """Pipeline schedule and virtual stages."""
    text = parallel.word("pipeline_parallel_schedule", default="1F1B") or "1F1B"
    if text.lower() not in SCHEDULES:
        raise parallel.refuse("pipeline_parallel_schedule", text, f"one of {', '.join(SCHEDULES)}")
    word, stages = SCHEDULES[text.lower()]
    if text.lower() in ("interleavedzerobubble", "loopedbfs", "dualpipev"):
        notes.append(f'pipeline schedule {text} is described by the nearest one, "{word}"')
    each = parallel.whole("pipeline_parallel_layers_per_stage")
    first = parallel.whole("pipeline_parallel_first_stage_less_layers", lowest=0, default=1) or 0
    last = parallel.whole("pipeline_parallel_last_stage_less_layers", lowest=0, default=1) or 0
    points = parallel.words("pipeline_parallel_split_points")
    parts = parallel.raw("module_fqns_per_model_part")
    count = None
    if isinstance(parts, list) and parts:
        count = len(parts)
    elif points:
        count = len(points) + 1
    elif each is not None and "layers" in shape:
        count = -(-(int(shape["layers"]) + first + last) // each)
    if count is not None:
        if count % pipeline:
            raise parallel.refuse("pipeline_parallel_degree", pipeline, f"a divisor of the {count} stages of the model")
        stages = count // pipeline
    return word, stages


def _recomputation(saved: Keys, shape: Shape, notes: list[str]) -> tuple[str, int | None]:
    """Kind of recomputation; where every n-th layer is recomputed, their number."""
    mode = saved.word("mode", default="selective") or "selective"
    option = saved.word("selective_ac_option", default="op") or "op"
    saved.skip("per_op_sac_force_recompute_mm_shapes_by_fqns", "memory_budget", "visualize_memory_budget_pareto")
    if mode not in ("none", "selective", "full", "memory_budget"):
        raise saved.refuse("mode", mode, "none, selective, full or memory_budget")
    if mode == "memory_budget":
        notes.append("activations are kept within a memory budget by the compiler; taken as selective recomputation")
        return "selective", None
    every = whole_number(option)
    if mode == "selective" and every is not None and 0 < every < 10_000:
        notes.append(f"every layer number that {every} divides is recomputed in full")
        return "selective", int(shape["layers"]) // every if "layers" in shape else None
    return mode, None


def _precision(keys: Keys, training: Keys) -> tuple[str, str | None, str | None]:
    """Precision, its recipe, and adapters if the model is converted to some."""
    stored, mixed = (
        training.word("dtype", default="float32"),
        training.word("mixed_precision_param", default="bfloat16"),
    )
    training.skip("mixed_precision_reduce")
    model = keys.values.get("model")
    named = Keys(model, keys.where, "model.").words("converters") if isinstance(model, dict) else ()
    later = keys.values.get("model_converters")
    listed = later.get("converters") if isinstance(later, dict) else None
    keys.skip("quantize", "float8", "mx", "model_converters", "primus_turbo")
    recipe, adapters = None, None
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and "rank" in one:
            adapters = f"lora, rank {str(one['rank'])[:10]}"
        elif isinstance(one, dict):
            named = (*named, "mx" if str(one.get("recipe_name", "")).startswith("mx") else "float8")
            recipe = str(one["recipe_name"])[:40] if one.get("recipe_name") else None
    if any("lora" in one for one in named):
        adapters = "lora"
    if any("mx" in one for one in named):
        return "fp8", recipe or "mxfp8", adapters
    if any("float8" in one for one in named):
        return "fp8", recipe or _float8_recipe(keys), adapters
    return ("bf16" if "bfloat16" in (stored, mixed) else "fp16" if mixed == "float16" else "fp32"), None, adapters


def _float8_recipe(keys: Keys) -> str:
    """The recipe of `[float8]` in v0.1 or `[quantize.linear.float8]` in v0.2."""
    section: Any = keys.values.get("float8")
    for key in ("quantize", "linear", "float8") if section is None else ():
        section = (keys.values if key == "quantize" else section or {}).get(key)
        if not isinstance(section, dict):
            section = {}
    found = section.get("recipe_name") if isinstance(section, dict) else None
    return str(found)[:40] if found else "tensorwise"
