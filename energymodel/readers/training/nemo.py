"""What does a YAML file of NeMo or its launcher say, with the interpolations of OmegaConf worked out?"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import TrainingConfig
from energymodel.readers.training.interpolation import worked_out
from energymodel.readers.training.keys import Keys, shown
from energymodel.readers.training.megatron import from_arguments

NEMO = {"biases": True, "tied": True, "layer_norm": True, "groups_alone": True}
"""What NeMo does where its file is silent."""
OTHER_MODELS = (
    "bert_binary_head",
    "encoder",
    "decoder",
    "vision",
    "vision_pretrained",
    "unet_config",
    "mm_cfg",
    "preprocessor",
)
"""Keys of NeMo's models that are no decoders of text alone."""
UNUSED = ("tokenizer", "optim", "data", "nsys_profile", "ub_tp_comm_overlap_cfg", "peft", "mcore_customization_config")


def read_nemo(table: dict[str, Any], where: str) -> TrainingConfig:
    """The run of a file with `trainer` and `model`; alone or below `training`."""
    trainer_raw, model_raw = table.get("trainer"), table.get("model")
    for name, section in (("trainer", trainer_raw), ("model", model_raw)):
        if not isinstance(section, Mapping):
            raise InputError(f'"{where}": {name} is {shown(section)}; it must be a table of keys.')
    model_table, trainer_table = worked_out(table, ("model", "trainer"), where)
    for name in OTHER_MODELS:
        if model_table.get(name) not in (None, False, {}, []):
            raise InputError(
                f'"{where}": model.{name} is {shown(model_table[name])}: a model with an encoder, images or sound '
                "cannot be described. Describe the nearest transformer with --model, or by its shape in a scenario."
            )
    trainer = Keys(trainer_table, where, "trainer.")
    optim, data = model_table.get("optim"), model_table.get("data")
    arguments = {key: value for key, value in model_table.items() if key not in UNUSED}
    name = str(optim.get("name", "")) if isinstance(optim, Mapping) else ""
    distributed = name in ("mcore_distributed_optim", "distributed_fused_adam")
    arguments["use_distributed_optimizer"] = distributed
    if isinstance(optim, Mapping):
        arguments |= {key: optim[key] for key in ("overlap_grad_sync", "overlap_param_sync") if key in optim}
    if isinstance(data, Mapping) and arguments.get("encoder_seq_length") is None:
        arguments["encoder_seq_length"] = data.get("seq_length")
    arguments["max_steps"] = _steps(trainer)
    if arguments.get("precision") is None:
        arguments["precision"] = trainer.values.get("precision")
    if arguments.get("fp8") in (False, None):
        arguments["fp8"] = None
    strategy = arguments.pop("fsdp_sharding_strategy", None)
    arguments["optimizer"] = name or None
    nodes, devices = trainer.whole("num_nodes", default=1), _devices(trainer)
    accumulation = trainer.whole("accumulate_grad_batches", default=1)
    if accumulation is not None and accumulation > 1:
        raise trainer.refuse(
            "accumulate_grad_batches", accumulation, "1: NeMo's Megatron models accumulate by global_batch_size"
        )
    config = from_arguments(
        arguments | {"#nodes": nodes, "#per_node": devices} if devices else arguments,
        where,
        "nemo",
        NEMO,
        prefix="model.",
    )
    tokenizer = model_table.get("tokenizer")
    kind = tokenizer.get("type") if isinstance(tokenizer, Mapping) else None
    adapters = model_table.get("peft")
    scheme = adapters.get("peft_scheme") if isinstance(adapters, Mapping) else None
    sharding = 2 if config.sharding == 3 and strategy == "grad" else config.sharding
    return dataclasses.replace(
        config,
        tokenizer=kind if isinstance(kind, str) and "$" not in kind else None,
        adapters=str(scheme)[:40] if scheme not in (None, "none", "null") else None,
        sharding=sharding,
    )


def _steps(trainer: Keys) -> int | None:
    steps = trainer.whole("max_steps", lowest=-1)
    return steps if steps is not None and steps > 0 else None


def _devices(trainer: Keys) -> int | None:
    """Accelerators of a node: a number, or a list of them; -1 is as many as there are."""
    value = trainer.raw("devices", "gpus")
    if value is None or value in (-1, "auto", "-1"):
        return None
    if isinstance(value, list):
        return len(value) or None
    return trainer.whole("devices", "gpus")
