"""NeMo's sections as arguments of Megatron-LM."""

from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.interpolation import worked_out
from energymodel.readers.training.interpreter import Hook, Prepared
from energymodel.readers.training.keys import Keys, quoted

OTHER_MODELS = (
    "bert_binary_head", "encoder", "decoder", "vision", "vision_pretrained", "unet_config", "mm_cfg", "preprocessor",
)  # fmt: skip
"""Keys of NeMo's models that are no decoders of text alone."""
UNUSED = ("tokenizer", "optim", "data", "nsys_profile", "ub_tp_comm_overlap_cfg", "peft", "mcore_customization_config")

OVERLAPS = ("overlap_grad_sync", "overlap_param_sync")


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The arguments of a file with `trainer` and `model`, alone or below `training`."""
    for name in ("trainer", "model"):
        if not isinstance(table.get(name), Mapping):
            raise InputError(f'"{where}": {name} is {quoted(table.get(name))}; it must be a table of keys.')
    model, trainer_table = worked_out(table, ("model", "trainer"), where)
    for name in OTHER_MODELS:
        if model.get(name) not in (None, False, {}, []):
            raise InputError(
                f'"{where}": model.{name} is {quoted(model[name])}: a model with an encoder, images or sound '
                "cannot be described. Describe the nearest transformer with --model, or by its shape in a scenario."
            )
    trainer = Keys(trainer_table, where, "trainer.")
    sections = {name: _table(model.get(name)) for name in ("optim", "data", "peft", "tokenizer")}
    optimizer = str(sections["optim"].get("name", ""))
    arguments = {key: value for key, value in model.items() if key not in UNUSED}
    strategy = arguments.pop("fsdp_sharding_strategy", None)
    arguments |= {key: value for key, value in sections["optim"].items() if key in OVERLAPS}
    arguments["use_distributed_optimizer"] = optimizer in ("mcore_distributed_optim", "distributed_fused_adam")
    arguments["optimizer"] = optimizer or None
    if arguments.get("encoder_seq_length") is None:
        arguments["encoder_seq_length"] = sections["data"].get("seq_length")
    if arguments.get("precision") is None:
        arguments["precision"] = trainer.get("precision")
    steps = trainer.count("max_steps", lowest=-1)
    arguments["max_steps"] = steps if steps and steps > 0 else None
    if devices := _devices(trainer):
        arguments |= {"#nodes": trainer.count("num_nodes") or 1, "#per_node": devices}
    accumulation = trainer.count("accumulate_grad_batches")
    if accumulation is not None and accumulation > 1:
        needed = "1: NeMo's Megatron models accumulate by global_batch_size"
        raise trainer.refuse("accumulate_grad_batches", accumulation, needed)
    tokenizer, scheme = sections["tokenizer"].get("type"), sections["peft"].get("peft_scheme")
    words = {
        "tokenizer": tokenizer if isinstance(tokenizer, str) and "$" not in tokenizer else None,
        "adapters": str(scheme)[:40] if scheme not in (None, "none", "null") else None,
        "gradients_alone": strategy == "grad",
    }
    return Prepared(arguments, words, prefix="model.")


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _devices(trainer: Keys) -> int | None:
    """Accelerators of a node: a number, or a list of them; -1 is as many as there are."""
    value = trainer.raw("devices gpus")
    if value in (-1, "auto", "-1"):
        return None
    return len(value) or None if isinstance(value, list) else trainer.count("devices gpus")


HOOK = Hook(prepare)
