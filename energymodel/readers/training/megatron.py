"""What do the arguments of Megatron-LM say, on a command line or in YAML?

`from_arguments` also serves what is built on it: NeMo, Megatron-Bridge and Primus rename a few arguments.
"""

import re
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import TrainingConfig, settle
from energymodel.readers.training.keys import Keys, flat, shown, understood
from energymodel.readers.training.megatron_shape import shape

FSDP_STAGE = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
OVERLAPS = {
    "data": ("overlap_grad_reduce", "overlap_param_gather", "overlap_grad_sync", "overlap_param_sync"),
    "tensor": ("tp_comm_overlap", "ub_tp_comm_overlap"),
    "pipeline": ("overlap_p2p_comm", "overlap_p2p_communication"),
    "expert": ("overlap_moe_expert_parallel_comm", "moe_shared_expert_overlap", "delay_wgrad_compute"),
}
SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
MEGATRON = {"biases": True, "tied": True, "layer_norm": True, "groups_alone": False}
"""What Megatron-LM does where its arguments are silent."""


def from_arguments(
    arguments: dict[str, Any], where: str, kind: str, says: dict[str, bool], *, recipe: bool = False, prefix: str = ""
) -> TrainingConfig:
    """The run that arguments with Megatron-LM's names describe.

    **Arguments:**

    - `says`: what the framework does where the file is silent (`MEGATRON`).
    - `recipe`: whether a named recipe lies below the file, so that what it leaves out is unknown.
    - `prefix`: path of the arguments in the file, for messages.
    """
    keys = Keys(arguments, where, prefix)
    keys.skip(*understood("megatron"))
    notes: list[str] = []
    silent = None if recipe else 1
    tensor = keys.whole("tensor_model_parallel_size", "model_parallel_size", default=silent)
    model = shape(keys, tensor or 1, notes, **says)
    layers = int(model["layers"]) if "layers" in model else None
    pipeline = keys.whole("pipeline_model_parallel_size", default=silent)
    expert_tensor = keys.whole("expert_tensor_parallel_size", default=tensor)
    sequence = keys.whole("seq_length", "encoder_seq_length", "sequence_length")
    batch, schedule = _batches(keys, sequence, notes)
    steps, tokens = _length(keys, batch, sequence, schedule, notes)
    precision, scales = _precision(keys, recipe)
    recomputation, recomputed = _recomputation(keys, layers, pipeline or 1, recipe, notes)
    sharding = _sharding(keys, recipe)
    if sharding is None and "deepspeed_config" in keys:
        notes.append("the DeepSpeed file that the command names is not followed: its ZeRO stage is unknown")
    copies = keys.whole("num_distributed_optimizer_instances", default=1)
    if copies is not None and copies > 1:
        notes.append(f"the states are divided within each of {copies} groups of replicas")
    interleave = _interleave(keys, layers, pipeline, recipe, notes)
    method = keys.raw("cp_comm_type")
    method = method[0] if isinstance(method, list) and method else method
    slots = [keys.flag(f"account_for_{part}_in_pipeline_split") for part in ("embedding", "loss")]
    offload = _offload(keys)
    nodes, each = keys.whole("#nodes"), keys.whole("#per_node")
    chips = keys.whole("world_size") or (nodes * each if nodes and each else None)
    context = keys.whole("context_parallel_size", default=silent)
    together = (tensor or 1) * (pipeline or 1) * (context or 1)
    if chips is not None and chips % together and kind == "megatron-lm":
        notes.append(f"the launcher has {chips} accelerators, the degrees need a multiple of {together}")
        chips = None
    tokenizer = keys.word("tokenizer_model", "tokenizer_name_or_path") if _plain(keys, "tokenizer_model") else None
    config = TrainingConfig(
        kind=kind,
        model=model,
        tokenizer=tokenizer or (keys.word("tokenizer_type") if _plain(keys, "tokenizer_type") else None),
        chips=chips,
        data=keys.whole("data_parallel_size") if not recipe else None,
        tensor=tensor,
        pipeline=pipeline,
        interleave=interleave,
        context=context,
        context_collective=None if method is None else "all_to_all" if "a2a" in str(method) else "ring",
        expert=keys.whole("expert_model_parallel_size", "moe_expert_parallel_size", default=silent),
        expert_tensor=expert_tensor,
        first_stage_layers=keys.whole("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"),
        last_stage_layers=keys.whole("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"),
        embedding_balanced=any(slots) if None not in slots or any(slots) else None,
        micro_batch=keys.whole("micro_batch_size"),
        batch_sequences=batch,
        batch_schedule=schedule,
        sequence=sequence,
        precision=precision,
        precision_recipe=scales,
        recomputation=recomputation,
        recomputed_layers=recomputed,
        sharding=sharding,
        sequence_parallel=None if recipe and "sequence_parallel" not in keys else keys.on("sequence_parallel"),
        optimizer=keys.word("optimizer", default=None if recipe else "adam"),
        schedule=None if recipe and pipeline is None else "1f1b",
        overlaps=tuple(name for name, words in OVERLAPS.items() if keys.any_on(*words)),
        steps=steps,
        tokens=tokens,
        offload=offload,
        cuda_graphs=_graphs(keys),
        notes=tuple(notes),
        ignored=keys.unread(),
    )
    return settle(config)


def read_megatron(table: dict[str, Any], where: str) -> TrainingConfig:
    """The run of a YAML file: of a functional test (`MODEL_ARGS`), of `--yaml-cfg`, or with the arguments as keys."""
    inner = table.get("MODEL_ARGS", table)
    if isinstance(inner, list):
        inner = {str(key): value for one in inner if isinstance(one, dict) for key, value in one.items()}
    if not isinstance(inner, dict):
        raise InputError(f'"{where}": MODEL_ARGS is {shown(inner)}; it must be a table of arguments.')
    arguments = {key.lstrip("-").replace("-", "_"): value for key, value in flat(inner).items()}
    return from_arguments(arguments, where, "megatron-lm", MEGATRON)


def _plain(keys: Keys, name: str) -> bool:
    """Whether a key has a text without variables."""
    value = keys.values.get(name)
    if not isinstance(value, str) or "$" in value:
        keys.skip(name)
        return False
    return True


def _batches(keys: Keys, sequence: int | None, notes: list[str]) -> tuple[int | None, tuple[tuple[float, int], ...]]:
    """The last batch and the ones before it."""
    batch = keys.whole("global_batch_size")
    stairs = keys.word("step_batch_size_schedule") if keys.values.get("step_batch_size_schedule") else None
    ramp = keys.raw("rampup_batch_size")
    if stairs is not None:
        found: list[tuple[float, int]] = []
        for part in stairs.split()[:1000]:
            match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([KMBT]?):(\d{1,9})", part)
            if match is None or int(match[3]) < 1:
                needed = 'pairs of tokens and sequences, as "0:384 200B:768"'
                raise keys.refuse("step_batch_size_schedule", stairs, needed)
            found.append((float(match[1]) * SCALE[match[2]], int(match[3])))
        notes.append("the batch grows in steps of its schedule; its thresholds are tokens")
        return None, tuple(found)
    if ramp in (None, "", []):
        return batch, ()
    numbers = re.findall(r"\d{1,12}", " ".join(str(one) for one in ramp) if isinstance(ramp, list) else str(ramp))
    if len(numbers) != 3 or int(numbers[1]) < 1 or int(numbers[0]) < 1:
        raise keys.refuse(
            "rampup_batch_size", ramp, "three whole numbers: first batch, increment, sequences of the ramp"
        )
    first, increment, samples = (int(one) for one in numbers)
    if batch is None or batch < first or (batch - first) % increment or (batch - first) // increment > 10_000:
        raise InputError(
            f"{keys.path('rampup_batch_size')} is {shown(ramp)}: from {first} in steps of {increment} it does not "
            f"reach a global batch of {batch}; correct one of them."
        )
    count = (batch - first) // increment
    if sequence is None or not count:
        return batch, ()
    each = samples * sequence / count
    return batch, tuple((step * each, first + step * increment) for step in range(count + 1))


def _length(
    keys: Keys, batch: int | None, sequence: int | None, schedule: tuple[tuple[float, int], ...], notes: list[str]
) -> tuple[int | None, float | None]:
    """Steps as the file states them, and tokens."""
    steps, samples = keys.whole("train_iters", "max_steps", lowest=0), keys.whole("train_samples")
    last = keys.whole("exit_interval")
    stated = keys.number("train_tokens")
    given = [one for one in (steps, last) if one]
    count = min(given) if given else None
    tokens = stated
    if samples is not None and sequence is not None:
        tokens = float(samples) * sequence
        if count is not None and batch is not None and not schedule:
            if count * batch > samples:
                notes.append(f"{samples} sequences end the run after {samples // batch} of {count} steps")
            tokens = min(tokens, float(count) * batch * sequence)
    if count is None and samples is not None and batch is not None and not schedule:
        count = samples // batch
    return count, tokens


def _precision(keys: Keys, recipe: bool) -> tuple[str | None, str | None]:
    """Precision of the products with weights, and how its scales are found."""
    bf16, fp16 = keys.on("bf16"), keys.on("fp16")
    eight, four = keys.raw("fp8_format", "fp8"), keys.raw("fp4_format", "fp4")
    scales, fine = keys.word("fp8_recipe"), keys.word("fp4_recipe")
    mixed = keys.raw("precision", "mixed_precision")
    keys.skip("fp8_param_gather", "fp8_param", "fp8_margin", "fp8_interval", "fp8_amax_history_len", "params_dtype")
    keys.skip("fp8_amax_compute_algo", "fp8_e4m3", "fp8_hybrid", "fp8_wgrad", "fp8_params", "pipeline_dtype", "fp32")
    off = (None, False, "", "null", "None", "false", "False")
    if four not in off:
        return "fp4", fine
    if eight not in off:
        return "fp8", scales or "delayed"
    text = str(mixed).lower() if isinstance(mixed, str | int) and not isinstance(mixed, bool) else ""
    if "fp4" in text:
        return "fp4", text
    if "fp8" in text:
        return "fp8", text
    if bf16 or "bf16" in text:
        return "bf16", None
    if fp16 or "16" in text:
        return "fp16", None
    if text and "32" not in text:
        raise keys.refuse("precision", mixed, "bf16, fp16 or 32")
    return (None if recipe and not text else "fp32"), None


def _recomputation(
    keys: Keys, layers: int | None, pipeline: int, recipe: bool, notes: list[str]
) -> tuple[str | None, int | None]:
    """Kind of recomputation, and the layers it is for if not all."""
    kind = keys.word("recompute_granularity", "activations_checkpoint_granularity", known=("none", "full", "selective"))
    method = keys.word("recompute_method", "activations_checkpoint_method")
    count = keys.whole("recompute_num_layers", "activations_checkpoint_num_layers", lowest=0)
    modules = keys.raw("recompute_modules")
    if keys.on("recompute_activations"):
        kind = kind or "selective"
    if keys.on("checkpoint_activations", "moe_layer_recompute"):
        kind = kind or ("full" if keys.values.get("checkpoint_activations") else "selective")
    if kind == "selective" and modules:
        words = modules if isinstance(modules, list) else str(modules).split()
        notes.append(f"recomputed: {', '.join(str(one)[:40] for one in words[:12])}")
    if kind is None:
        return (None if recipe else "none"), None
    if kind == "full" and method == "block" and count is not None and layers is not None:
        return ("full", min(layers, count * pipeline)) if count else ("none", None)
    return kind, None


def _sharding(keys: Keys, recipe: bool) -> int | None:
    """ZeRO stage."""
    strategy = keys.word("data_parallel_sharding_strategy", known=FSDP_STAGE)
    own = keys.on("use_megatron_fsdp") or keys.on("use_custom_fsdp")
    stage = keys.whole("zero_stage", lowest=0)
    torch = keys.on("use_torch_fsdp2") or keys.on("fsdp")
    distributed = keys.flag("use_distributed_optimizer")
    if torch:
        return 3
    if own:
        return 3 if strategy is None else FSDP_STAGE[strategy]
    if stage is not None:
        if stage > 3:
            raise keys.refuse("zero_stage", stage, "a stage from 0 to 3")
        return stage
    if distributed is not None:
        return int(distributed)
    return None if recipe or "deepspeed_config" in keys else 0


def _interleave(keys: Keys, layers: int | None, pipeline: int | None, recipe: bool, notes: list[str]) -> int | None:
    """Virtual stages of a rank: given, from the layers of one, or from the layout that draws each stage."""
    each, count = (
        keys.whole("num_layers_per_virtual_pipeline_stage"),
        keys.whole("num_virtual_stages_per_pipeline_rank"),
    )
    count = count or keys.whole("virtual_pipeline_model_parallel_size")
    drawn = keys.raw("pipeline_model_parallel_layout")
    if count is not None or pipeline is None:
        return count
    if each is not None and layers is not None:
        if layers % (each * pipeline):
            raise InputError(
                f"{keys.path('num_layers_per_virtual_pipeline_stage')} is {each}: {layers} layers do not divide by it "
                f"and {pipeline} pipeline ranks; correct it."
            )
        return layers // (each * pipeline)
    if isinstance(drawn, str) and drawn:
        stages = _stages(drawn)
        if stages and stages % pipeline == 0:
            notes.append(f"pipeline drawn by hand: {stages} stages on {pipeline} ranks, taken as equal")
            return stages // pipeline
        raise keys.refuse(
            "pipeline_model_parallel_layout", drawn, f"stages divided by | whose number {pipeline} ranks divide"
        )
    return None if recipe and pipeline > 1 else 1


def _stages(drawn: str) -> int:
    """Stages of a layout such as `Et*2|(tt|)*5t|tmL`: the bars in it, repeats counted, and one."""
    if len(drawn) > 2000:
        return 0

    def repeated(match: re.Match[str]) -> str:
        return match[1] * min(int(match[2]), 1000)

    text = drawn.strip("'\" ")
    for _ in range(4):
        wider = re.sub(r"\(([^()]*)\)\*(\d{1,3})", repeated, text)
        if wider == text or len(wider) > 100_000:
            break
        text = wider
    return len([stage for stage in text.split("|") if stage.strip()])


def _offload(keys: Keys) -> tuple[str, ...]:
    """What lies in host memory."""
    found = []
    if keys.on("optimizer_cpu_offload") or keys.on("offload_optimizer_states"):
        share = keys.number("optimizer_offload_fraction", default=1.0)
        if share:
            found.append("optimizer")
    keys.skip("overlap_cpu_optimizer_d2h_h2d")
    layers = keys.whole("cpu_offloading_num_layers", lowest=0)
    if layers and keys.flag("cpu_offloading", default=True):
        found.append("activations")
    keys.skip("cpu_offloading_activations", "cpu_offloading_weights")
    if keys.on("fine_grained_activation_offloading") and "activations" not in found:
        found.append("activations")
    return tuple(found)


def _graphs(keys: Keys) -> bool | None:
    """Whether kernels are launched from CUDA graphs."""
    way = keys.word("cuda_graph_impl")
    if keys.any_on("enable_cuda_graph", "external_cuda_graph") or way not in (None, "none"):
        return True
    return None if way is None else False
