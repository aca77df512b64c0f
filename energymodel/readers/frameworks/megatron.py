"""Patterns, layouts and schedules in arguments of Megatron-LM, and sections of Megatron-Bridge as such arguments."""

import re
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.expressions import constant_of
from energymodel.readers.training.interpreter import Hook, Prepared, Run, framework
from energymodel.readers.training.keys import flat, is_harmless, quoted, table_of

VARIABLE = re.compile(r"\$\{?\w{1,40}\}?")
SHAPE = {"num_layers", "hidden_size", "num_attention_heads"}
SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The arguments of a YAML file: of a functional test (`MODEL_ARGS`), of `--yaml-cfg`, or as its keys."""
    inner = table.get("MODEL_ARGS", table)
    if isinstance(inner, list):
        inner = {str(key): value for item in inner if isinstance(item, dict) for key, value in item.items()}
    arguments = flat(table_of(inner, where, "MODEL_ARGS", "a table of arguments"))
    named = {key.lstrip("-").replace("-", "_"): value for key, value in arguments.items()}
    left = [
        f"{key} ({value})" for key, value in named.items() if VARIABLE.fullmatch(str(value)) and not is_harmless(key)
    ]
    if len(left) > 1:
        raise InputError(
            f'"{where}" is a template: {", ".join(left[:8])}{", ..." if len(left) > 8 else ""} come from the script '
            "that starts it. Write their values into it, or give that script."
        )
    return Prepared(named)


def stairs_of(run: Run, text: str) -> tuple[tuple[float, int], ...]:
    """Batches and the tokens from which they hold."""
    steps = []
    for part in (run.keys.word("step_batch_size_schedule") or "").split()[:1000]:
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([KMBT]?):(\d{1,9})", part)
        if match is None or int(match[3]) < 1:
            needed = 'pairs of tokens and sequences, as "0:384 200B:768"'
            raise run.keys.refuse("step_batch_size_schedule", text, needed)
        steps.append((float(match[1]) * SCALE[match[2]], int(match[3])))
    return tuple(steps)


def ramp_of(run: Run, batch: int | None, sequence: int | None) -> tuple[tuple[float, int], ...]:
    """Batches that grow to the last one in equal steps, and the tokens from which they hold."""
    ramp = run.keys.raw("rampup_batch_size")
    if ramp in (None, "", []):
        return ()
    numbers = re.findall(r"\d{1,12}", " ".join(str(item) for item in ramp) if isinstance(ramp, list) else str(ramp))
    if len(numbers) != 3 or int(numbers[1]) < 1 or int(numbers[0]) < 1:
        needed = "three whole numbers: first batch, increment, sequences of the ramp"
        raise run.keys.refuse("rampup_batch_size", ramp, needed)
    first, increment, samples = (int(number) for number in numbers)
    if batch is None or batch < first or (batch - first) % increment or (batch - first) // increment > 10_000:
        raise InputError(
            f"{run.keys.path('rampup_batch_size')} is {quoted(ramp)}: from {first} in steps of {increment} it does not "
            f"reach a global batch of {batch}; correct one of them."
        )
    count = (batch - first) // increment
    if sequence is None or not count:
        return ()
    return tuple((step * (samples * sequence / count), first + step * increment) for step in range(count + 1))


def windows_of(run: Run, layers: int) -> tuple[int | None, float | None]:
    """Tokens of a sliding window, and the share of the layers that have it."""
    window, every = run.keys.raw("window_size"), run.keys.raw("window_attn_skip_freq")
    if window is None or window in ("-1", "(-1,-1)", "None"):
        return None, None
    numbers = [int(number) for number in re.findall(r"-?\d{1,9}", str(window))[:2]]
    if not numbers or numbers[0] < 0:
        raise run.keys.refuse("window_size", window, "a pair of tokens before and after, as (127, 0)")
    if every is None:
        return numbers[0] + 1, 1.0
    if isinstance(every, str | list):
        return numbers[0] + 1, sum(pattern_of(run, "window_attn_skip_freq", layers) or ()) / layers
    return numbers[0] + 1, 1.0 - (layers // (run.keys.count("window_attn_skip_freq") or 1)) / layers


def pattern_of(run: Run, key: str, layers: int, otherwise: int | None = None) -> list[int] | None:
    """1 for each layer of a pattern such as `([0]*3+[1]*11)`, or 1 for every n-th; None where it is missing."""
    value = run.keys.raw(key)
    value = otherwise if value is None else value
    if value is None:
        return None
    if isinstance(value, list):
        pattern = [item if isinstance(item, int) else -1 for item in value]
    else:
        text = str(value).replace(" ", "")
        if re.fullmatch(r"\d{1,4}", text) and int(text) > 0:
            return [1 if layer % int(text) == 0 else 0 for layer in range(layers)]
        pattern = constant_of(text) if len(text) <= 400 else None
    if not isinstance(pattern, list) or len(pattern) != layers or any(item not in (0, 1) for item in pattern):
        needed = f"a whole number, or a pattern of {layers} zeros and ones such as ([0]*1+[1]*{layers - 1})"
        raise run.keys.refuse(key, value, needed)
    return pattern


def stages_drawn(_: Run, drawn: str) -> int:
    """Stages of a layout such as `Et*2|(tt|)*5t|tmL`: the bars in it, repeats counted, and one; 0 without a layout."""
    text = drawn.strip("'\" ") if len(drawn) <= 2000 else ""
    for _round in range(4):
        wider = re.sub(r"\(([^()]*)\)\*(\d{1,3})", lambda match: match[1] * min(int(match[2]), 1000), text)
        if wider == text or len(wider) > 100_000:
            break
        text = wider
    return len([stage for stage in text.split("|") if stage.strip()])


def prepare_bridge(table: dict[str, Any], where: str) -> Prepared:
    """The arguments of all sections; what the file leaves out is in the recipe, which is not read."""
    inner = table_of(table.get("ConfigContainer", table), where, "ConfigContainer", "a table of sections")
    rules, arguments = framework("megatron-bridge"), dict[str, Any]()
    for name in rules["sections"]:
        section = inner.get(name)
        if name == "mixed_precision" and isinstance(section, str):
            section = {"mixed_precision": section}
        for key, value in flat(table_of({} if section is None else section, where, name)).items():
            if not re.match(rules["left_out"].get(name, "_"), key) and (value is not None or key not in arguments):
                arguments[key] = value
    length = arguments.pop("sequence_length", None)
    if arguments.get("seq_length") is None and length is not None:
        arguments["seq_length"] = length
    if arguments.get("is_hybrid_model") is False:
        del arguments["is_hybrid_model"]
    arguments.pop("hf_model_id", None)
    is_recipe = not arguments.keys() >= SHAPE
    sentences = {
        "a named recipe lies below this file; what the file leaves out is in the recipe, which is not read": is_recipe,
        "the layouts of perf_matrix are not read: one file, many runs": "perf_matrix" in table,
    }
    words = {"is_recipe": is_recipe, "model_name": _model_name(inner), "adapters": _adapters(inner)}
    return Prepared(arguments, words, tuple(sentence for sentence, holds in sentences.items() if holds))


def _adapters(table: Mapping[str, Any]) -> str | None:
    adapter, lora = table.get("peft"), table.get("lora")
    if isinstance(adapter, Mapping) and adapter:
        kind, rank = str(adapter.get("_target_", "lora")).rsplit(".", 1)[-1][:40].lower(), adapter.get("dim")
    elif isinstance(adapter, str) and adapter not in ("none", ""):
        kind, rank = adapter[:40], None
    elif isinstance(lora, Mapping) and lora.get("use_lora", True):
        kind, rank = "lora", lora.get("lora_rank")
    else:
        return None
    return f"{kind}, rank {rank}" if isinstance(rank, int) else kind


def _model_name(table: Mapping[str, Any]) -> str | None:
    """The model that a file names: by its page on Hugging Face, or by its recipe."""
    model = table.get("model")
    page = model.get("hf_model_id") if isinstance(model, Mapping) else model
    for name in (page, table.get("hf_model_name_or_path"), table.get("hf_path"), table.get("recipe")):
        if isinstance(name, str) and name and "$" not in name:
            plain = name.rsplit(".", 1)[-1] if name.startswith("megatron.") else name
            return re.sub(r"_(pretrain|finetune|sft|peft|lora)(_config)?(_\w+)?$", "", plain)[:200]
    return None


FUNCTIONS = (stairs_of, ramp_of, windows_of, pattern_of, stages_drawn)
HOOK, BRIDGE_HOOK = Hook(prepare, FUNCTIONS), Hook(prepare_bridge)
