"""Layers of a scenario: a preset, its bases, a file and `--set`, each laid over those below; the last one wins.

What a layer says can change the meaning of what lies below it, so that laying is more than merging tables: ZeRO stages,
recomputation and pipeline schedules have short words, another accelerator brings the parts that belong to it, and a
title that names the old model, accelerator or number of chips goes.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import equinox as eqx

from energymodel.errors import InputError, one_line, suggest
from energymodel.performance.switch_topologies import AbstractSwitchTree
from energymodel.performance.topology import AbstractTopology
from energymodel.readers.expressions import data_file
from energymodel.scenarios.components import quantity
from energymodel.scenarios.document import parse_document
from energymodel.scenarios.files import companions, merge, names, read_preset, read_toml
from energymodel.scenarios.forms import quoted, word
from energymodel.system.outputs import parse_number
from energymodel.system.plan import RECOMPUTED, SCHEDULES, EvenPower, ParallelLayout, StagePower, TrainingPlan

SHORT_WORDS = data_file(__file__, "layers.toml")
"""The fields of a layout that short words set, by the field of a file that has the word."""
SET_TOGETHER = {"schedule": SCHEDULES, "recomputation": RECOMPUTED}
"""Fields of a layout that are 0 where the word does not set them."""
MOST_BASES = 32
TOPOLOGY = "system.network.topology"
SWITCH = ("radix", "pod", "port_lanes", "switch_lanes")
"""Numbers of the switches, which a topology takes over."""

Tables = dict[str, Any]


def named_tables(source: str | Path | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and tables of a preset, a file or tables that a program made, as they were written.

    **Raises:** `InputError` for an unknown preset, and for a file that cannot be read.
    """
    if isinstance(source, Mapping):
        return word(source.get("name", "scenario"), "name"), source
    if not isinstance(source, str | Path):
        raise InputError(f"scenario: {quoted(source)} is no preset, file or table. Give a name such as test-1b-h100.")
    text = str(source)
    if isinstance(source, Path) or text.endswith(".toml") or "/" in text:
        return Path(source).stem, read_toml(Path(source))
    if text not in names("scenarios"):
        raise InputError(f'Unknown scenario "{text}". {suggest(text, names("scenarios"))}')
    return text, read_preset("scenarios", text)


def with_bases(tables: Mapping[str, Any], name: str, seen: tuple[str, ...] = ()) -> Tables:
    """Tables of a scenario laid over those of its base, and of the base's base.

    **Raises:** `InputError` as `parse_document`, and for a base that is none.
    """
    own = parse_document(tables, name)
    base = own.pop("base", None)
    if base is None:
        return lay({}, own)
    if base in seen:
        raise InputError(f'{name}: base "{base}" refers to itself.')
    if len(seen) >= MOST_BASES:
        raise InputError(f"{name}: {MOST_BASES} scenarios are the base of each other. Merge some of them.")
    below = read_preset("scenarios", base) if base.startswith("_") else named_tables(base)[1]
    return lay(with_bases(below, base, (*seen, base)), own)


def lay(below: Tables, *layers: Tables) -> Tables:
    """Lay layers over those below them, one after the other.

    Another accelerator brings its node, network and supplies, and ends power caps of the old one, unless one of the
    layers names others.

    **Raises:** `InputError` for an unknown ZeRO stage, kind of recomputation or accelerator.
    """
    together = reduce(merge, layers, {})
    merged = reduce(merge, map(_with_switches, layers), _with_companions(below, together))
    if "title" in below and "title" not in together and _pieces(merged) != _pieces(below):
        del merged["title"]
    return merged


def nested(path: str, value: Any) -> Tables:
    """The layer that changes one dotted path."""
    return reduce(lambda below, part: {part: below}, reversed(path.split(".")), value)


def layout_switches(words: Mapping[str, Any], where: str) -> dict[str, float]:
    """The fields of a layout that `zero = 2`, `recomputation = "full"` and `schedule = "zb-h1"` stand for.

    Modules that are recomputed are joined, as in `recomputation = "mla_up_proj+moe_act"`.

    **Raises:** `InputError` that begins with `where` for an unknown word.
    """
    switches: dict[str, float] = {}
    for key, choices in SHORT_WORDS.items():
        if words.get(key) in (None, ""):
            continue
        switches |= dict.fromkeys(SET_TOGETHER.get(key, ()), 0.0)
        text = f"{_number(words[key], f'{where}{key}'):g}" if key == "zero" else str(words[key])
        for choice in text.split("+") if key == "recomputation" else [text]:
            if choice == "noun" or choice not in choices:
                near = suggest(choice, choices.keys() - {"noun"})
                raise InputError(f'{where}{key}: "{choice}" is not a {choices["noun"]}. {near}')
            switches |= choices[choice]
    return switches


def short_word(layout: Mapping[str, float], key: str) -> str | None:
    """The short word for fields of a layout, such as "zb-h1" for the key "schedule"; None if there is none."""
    off = dict.fromkeys(SET_TOGETHER.get(key, ()), 0.0)
    choices = {word: fields for word, fields in SHORT_WORDS[key].items() if word != "noun"}
    if key == "recomputation":  # selective is attention alone
        modules = [word for word in choices.keys() - {"none", "selective"} if choices[word].items() <= layout.items()]
        choices |= {"+".join(sorted(modules)): reduce(merge, (choices[word] for word in modules), {})}
    return next((word for word, fields in choices.items() if (off | fields).items() <= layout.items()), None)


def recomputation_words(layout: ParallelLayout) -> str:
    """The short word for what a layout recomputes, or the share of layers of each part."""
    shares = {name: float(getattr(layout, name)) for name in RECOMPUTED}
    parts = (f"{name.removeprefix('recompute_')} {share:g}" for name, share in shares.items() if share)
    return short_word(shares, "recomputation") or ", ".join(parts).replace("_", " ")


def _with_switches(layer: Tables) -> Tables:
    """The layer with the switches that the words of its layout stand for."""
    layout = _table(layer.get("plan")).get("layout")
    if not isinstance(layout, dict):
        return layer
    rest = {key: value for key, value in layout.items() if key not in ("zero", "recomputation", "schedule")}
    switches = layout_switches(layout, "plan.layout.")
    return {**layer, "plan": {**layer["plan"], "layout": {**rest, **switches, **rest}}}


def _with_companions(below: Tables, layer: Tables) -> Tables:
    """What lies below, with node, network and supplies of the accelerator that the layer puts in, at its own power."""
    old, chip = _table(below.get("system")).get("accelerator"), _table(layer.get("system")).get("accelerator")
    name = chip.get("preset") if isinstance(chip, dict) else chip
    if old is None or not isinstance(name, str) or _title("hardware", chip) == _title("hardware", old):
        return below
    plan = {key: value for key, value in _table(below.get("plan")).items() if key not in ("power_cap", "power")}
    return {**merge(below, {"system": companions(name)}), "plan": plan}


def _title(category: str, component: Any) -> str | None:
    """Title of a component that is a preset, changed or not."""
    component = {"preset": component} if isinstance(component, str) else _table(component)
    preset = component.get("preset")
    return component.get("title") or (read_preset(category, preset)["title"] if preset else None)


def _pieces(tables: Tables) -> tuple[str | None, str | None, float | None]:
    """What a title names: model, accelerator, number of chips."""
    system, chips = _table(tables.get("system")), _table(tables.get("plan")).get("chips")
    count = None if chips is None else _number(chips, "plan.chips")
    return _title("models", system.get("workload")), _title("hardware", system.get("accelerator")), count


def _table(value: Any) -> Tables:
    return value if isinstance(value, dict) else {}


def _number(value: Any, path: str) -> float:
    return quantity(value, "1", path)["value"]


def title_of(tables: Tables, name: str) -> str:
    """The title that the scenario states; else one that names its model, chips and accelerator; else its name."""
    if "title" in tables:
        return one_line(tables["title"])
    model, accelerator, chips = _pieces(tables)
    if model is None or accelerator is None or chips is None:
        return name
    return f"{model} on {chips:,.12g} {accelerator.partition(',')[0]}"


def topology_changes(name: str, own: AbstractTopology, changes: Sequence[str]) -> list[str]:
    """Changes of a scenario that give its network a topology by name, of the switches that its own has.

    Pods are of full two tiers, `k^2 / 4`; a dragonfly is balanced, `a = 2 p = 2 h` routers of `4 p - 1` ports
    [Kim et al. 2008, sec. 3.1]. Other changes of the topology, such as oversubscription, hold for the new one, too.

    **Arguments:**

    - `own`: topology of the scenario.
    - `changes`: of the scenario, as texts "PATH=VALUE".

    **Raises:** `InputError` that suggests the nearest name if there is none.
    """
    if name not in (presets := names("topologies")):
        raise InputError(f'topology: unknown "{name}". {suggest(name, presets)}')
    switches: dict[str, float] = {}
    if isinstance(own, AbstractSwitchTree):
        radix, hosts = float(own.radix), float((float(own.radix) + 1.0) // 4.0)
        tree = {"radix": radix, "pod": radix**2 / 4.0}
        dragonfly = {"hosts_per_router": hosts, "global_links": hosts, "routers_per_group": 2.0 * hosts}
        kinds = {"FatTree": tree, "RailOnly": tree, "Dragonfly": dragonfly}
        if kind := kinds.get(read_preset("topologies", name)["component"]):
            switches = {**kind, "port_lanes": float(own.port_lanes), "switch_lanes": float(own.switch_lanes)}
    own_changes = {text: text.partition("=")[0].strip() for text in changes if text.startswith(f"{TOPOLOGY}.")}
    return [
        f"{TOPOLOGY}={name}",
        *(f"{TOPOLOGY}.{field}={value!r}" for field, value in switches.items()),
        *(text for text, path in own_changes.items() if path.removeprefix(f"{TOPOLOGY}.") not in SWITCH),
    ]


BATCH = "plan.batch"
MOST_PARTS = 64  # of the progress, into which knots divide it
CLOSE = 0.01  # of the share of progress: by how much knots may miss where the rise ends
POWER = "plan.power"
STAGES = tuple(field.name for field in dataclasses.fields(StagePower))
LOWEST_SHARE = 0.3  # of the plan's power cap: the lowest cap of a stage that a search tries unless a range is given
_RISE = re.compile(r"\s*(?P<first>.+?)\s+to\s+(?P<last>.+?)\s+over\s+(?P<share>.+?)\s*(of progress)?\s*$")


def batch_knots(batch: Any) -> Any:
    """Knots of a batch such as "2 Mi token to 16 Mi token over 5 %"; everything else as it is.

    The logarithm of the batch rises in proportion to progress, the share of the run's effective tokens, then it stays.

    **Raises:** `InputError` for a share that is none, or too small for 65 knots.
    """
    rise = _RISE.match(batch) if isinstance(batch, str) else None
    if not rise:
        return batch
    share = parse_number(rise["share"], "1", BATCH)
    if not 0.0 < share < 1.0:
        raise InputError(f"{BATCH}: {rise['share']} is not a share of the progress. Give for example 5 %.")
    nearest = Fraction(share).limit_denominator(MOST_PARTS)
    if abs(float(nearest) - share) > CLOSE * share:
        raise InputError(
            f"{BATCH}: a rise over {rise['share']} of the progress is shorter than knots can say. Give at least "
            f"{100 / MOST_PARTS:.3g} %."
        )
    first, last = (parse_number(rise[end], "token", BATCH) for end in ("first", "last"))
    if min(first, last) <= 0.0:
        raise InputError(f"{BATCH}: {batch!r} has a batch that is not positive. Give tokens above zero.")
    shares = [min(1.0, knot / nearest.numerator) for knot in range(nearest.denominator + 1)]
    return [f"{first * (last / first) ** share!r} token" for share in shares]


def stage_power_table(power: Any, power_cap: Any) -> dict[str, Any]:
    """The table of `plan.power` with a component, and the plan's cap for stages that are not named.

    **Raises:** `InputError` for what is no table.
    """
    if not isinstance(power, dict):
        raise InputError(
            f"{POWER}: a table with {', '.join(STAGES)} is needed, not {power!r}. "
            "The cap of all chips is plan.power_cap."
        )
    if not power.keys() - {"component"} and power.get("component") in (None, EvenPower.__name__):
        return {"component": EvenPower.__name__}
    return {"component": StagePower.__name__, **dict.fromkeys(STAGES, power_cap), **power}


def with_stage_power(question: Mapping[str, Any], plan: TrainingPlan) -> tuple[Mapping[str, Any], TrainingPlan]:
    """A question, as `asked` gives it, with `plan.power.*` spelled out, and a plan with the numbers that it varies."""
    ranges = dict(question.get("vary", {}))
    if not any(path.startswith(f"{POWER}.") for path in ranges):
        return question, plan
    every, cap = f"{POWER}.*", float(plan.power_cap)
    if every in ranges:
        bounds = ranges.pop(every) or [LOWEST_SHARE * cap, cap]
        ranges = {**{f"{POWER}.{name}": bounds for name in STAGES}, **ranges}
    if isinstance(plan.power, EvenPower):
        plan = eqx.tree_at(lambda tree: tree.power, plan, StagePower(cap, cap, cap))
    return {**question, "vary": ranges}, plan
