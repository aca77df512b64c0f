"""How do a preset, its bases, a file and `--set` become one scenario? Each is laid over the one below; the last wins.

What a layer says can change the meaning of what lies below it, so that laying is more than merging tables: ZeRO stages,
recomputation and pipeline schedules have short words, another accelerator brings the parts that belong to it, and a
title that names the old model, accelerator or number of chips goes.
"""

from functools import reduce
from typing import Any

from energymodel.errors import InputError, one_line, suggest
from energymodel.scenarios.files import companions, is_quantity, merge, read_preset
from energymodel.system.plan import SCHEDULES
from energymodel.units import parse_quantity

ZERO_STAGES = ("shard_optimizer", "shard_gradients", "shard_parameters")
RECOMPUTATION = {"none": (0.0, 0.0), "selective": (1.0, 0.0), "full": (0.0, 1.0)}
SCHEDULE_WORDS = {
    "1f1b": "",
    "gpipe": "gpipe",
    "zb-h1": "zero_bubble",
    "zb-h2": "zero_bubble_h2",
    "zb-v": "zero_bubble_v",
    "dualpipe": "dual_pipe",
}

Tables = dict[str, Any]


def lay(below: Tables, *layers: Tables) -> Tables:
    """Lay layers over those below them, one after the other.

    Another accelerator brings its node, network and supplies, unless one of the layers names others.

    **Raises:** `InputError` for an unknown ZeRO stage, kind of recomputation or accelerator.
    """
    together = reduce(merge, layers, {})
    merged = _with_companions(below, together)
    for layer in layers:
        merged = merge(merged, _with_switches(layer))
    if "title" in below and "title" not in together and _pieces(merged) != _pieces(below):
        del merged["title"]
    return merged


def nested(path: str, value: Any) -> Tables:
    """The layer that changes one dotted path."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


def _with_switches(layer: Tables) -> Tables:
    """The layer with the switches that `zero = 2`, `recomputation = "full"` and `schedule = "zb-h1"` stand for."""
    plan = layer.get("plan")
    if not isinstance(plan, dict) or not isinstance(layout := plan.get("layout"), dict):
        return layer
    rest, switches = dict(layout), {}
    if "zero" in rest:
        stage = parse_quantity(rest.pop("zero"), "1", "plan.layout.zero")
        if stage not in (0.0, 1.0, 2.0, 3.0):
            raise InputError(f"plan.layout.zero: {stage:g} is not a ZeRO stage. Choose 0, 1, 2 or 3.")
        switches |= {key: float(stage > index) for index, key in enumerate(ZERO_STAGES)}
    if "recomputation" in rest:
        word = str(rest.pop("recomputation"))
        if word not in RECOMPUTATION:
            raise InputError(f'plan.layout.recomputation: unknown "{word}". {suggest(word, RECOMPUTATION)}')
        switches["recompute_attention"], switches["recompute_full"] = RECOMPUTATION[word]
    if "schedule" in rest:
        word = str(rest.pop("schedule"))
        if word not in SCHEDULE_WORDS:
            raise InputError(f'plan.layout.schedule: unknown "{word}". {suggest(word, SCHEDULE_WORDS)}')
        switches |= {key: float(key == SCHEDULE_WORDS[word]) for key in SCHEDULES}
    layout = {**rest, **{key: value for key, value in switches.items() if key not in rest}}
    return {**layer, "plan": {**plan, "layout": layout}}


def _with_companions(below: Tables, layer: Tables) -> Tables:
    """What lies below, with the node, network and supplies of the accelerator that the layer puts in.

    They are laid below the layer, so that a node that it names wins.
    """
    old, new = below.get("system"), layer.get("system")
    if not isinstance(old, dict) or not isinstance(new, dict) or "accelerator" not in old:
        return below
    chip = new.get("accelerator")
    name = chip.get("preset") if isinstance(chip, dict) else chip
    if not isinstance(name, str) or _title("hardware", chip) == _title("hardware", old["accelerator"]):
        return below
    return merge(below, {"system": companions(name)})


def _title(category: str, component: Any) -> str | None:
    """Title of a component that is a preset, changed or not."""
    component = {"preset": component} if isinstance(component, str) else component
    if not isinstance(component, dict):
        return None
    preset = component.get("preset")
    return component.get("title") or (read_preset(category, str(preset))["title"] if preset else None)


def _pieces(tables: Tables) -> tuple[str | None, str | None, float | None]:
    """What a title names: model, accelerator, number of chips."""
    system, plan = tables.get("system"), tables.get("plan")
    system, plan = system if isinstance(system, dict) else {}, plan if isinstance(plan, dict) else {}
    chips = plan.get("chips")
    if chips is not None:
        chips = parse_quantity(chips["value"] if is_quantity(chips) else chips, "1", "plan.chips")
    return _title("models", system.get("workload")), _title("hardware", system.get("accelerator")), chips


def title_of(tables: Tables, name: str) -> str:
    """The title that the scenario states; else one that names its model, chips and accelerator; else its name."""
    if "title" in tables:
        return one_line(str(tables["title"]))
    model, accelerator, chips = _pieces(tables)
    if model is None or accelerator is None or chips is None:
        return name
    return f"{model} on {chips:,.12g} {accelerator.partition(',')[0]}"
