"""Questions asked of a scenario: what to minimize, within which limits, and which numbers may vary.

The `[optimize]` section of a file, the arguments of `optimize` and its sisters, and the options of the command line are
read by the same parser, so that all of them know the same words and answer a mistake with the same message.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.scenarios.clock_scale import CLOCK, ClockScale, is_frequency
from energymodel.scenarios.forms import Form, flat, listed, number, plain, quoted, text, word
from energymodel.system.outputs import OutputFunction, own_output, parse_limit, parse_number, parse_objective, unit_of
from energymodel.units import whole_number

TOLERANCE = 0.005  # plans this much worse than the best are as good
TOKENS = "plan.goal.tokens"  # varies where the loss is an objective, also of a scenario that gives the loss
BATCH, OVER_PROGRESS = "plan.batch", "@0..1"
STAGE_POWER = "plan.power."
USUAL_KNOTS, MOST_KNOTS = 8, 32
LARGEST_POWER = 100.0  # of an output in an objective: 1e30 J to more than it overflows
COMPARED = ("accelerator", "network", "topology", "precision")
"""Options of `compare`, called as what they choose."""
LAYOUT = "plan.layout."
WORDS = {
    "zero": "Stages 1 to 3 are searched already; fix shard_gradients and shard_parameters instead.",
    "recomputation": "None and full are searched already; vary or fix recompute_attention and recompute_full instead.",
    "schedule": "Those of the framework are searched already; vary another one, such as plan.layout.zero_bubble=0:1.",
}
"""Short words of a layout, and what a search makes of them."""
POSITIVE = ("plan.batch", "plan.chips", TOKENS)
Minimize = str | OutputFunction
"""What to minimize: an output, a product of powers of outputs, or a function of the outcome (`system.outputs`)."""
Limits = Mapping[Any, Any] | Sequence[str]
"""Limits by output or function of the outcome, as text with a unit or in SI; or texts such as "time=60 days"."""
Ranges = Mapping[str, Any] | Sequence[str]
"""Low and high bound by path, as text with a unit or in SI; or texts such as "plan.clock=0.5:1"."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What a search minimizes, the limits of outputs, the ranges of further variables, the paths kept; all in SI.

    More than two numbers of a field of the layout are the values that it may have, in ascending order.
    `tolerance` is the share by which the objective of a plan may exceed the lowest, to save something else; `knots`
    those of a batch that follows the progress of the run, 0 for a constant one; chips come in multiples of `block`, of
    a node where that is 0.
    """

    minimize: str = "energy"
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    vary: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    fix: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    knots: int = 0
    block: int = 0

    @property
    def stages(self) -> tuple[str, ...]:
        """Paths of the power caps of pipeline stages that vary."""
        return tuple(path for path in self.vary if path.startswith(STAGE_POWER))

    @property
    def refined(self) -> bool:
        """Whether a batch over progress or power by stage is to be found."""
        return bool(self.knots or self.stages)

    def section(self, units: Mapping[str, str]) -> dict[str, Any]:
        """The `[optimize]` section that asks the same; `units` by path."""
        section = {
            "minimize": self.minimize,
            "limits": {name: f"{value!r} {unit_of(name)}" for name, value in self.limits.items()},
            "vary": {path: [f"{end!r} {_unit(path, units)}" for end in ends] for path, ends in self.vary.items()},
            "fix": list(self.fix),
            "knots": self.knots,
            "block": self.block,
        }
        if self.tolerance != TOLERANCE:
            section["tolerance"] = self.tolerance
        return {key: value for key, value in section.items() if value or key == "tolerance"}


def parse_question(
    section: Any, units: Mapping[str, str], before: Question | None = None, clocks: ClockScale | None = None
) -> Question:
    """Read a question and lay it over another: what it states replaces what was asked before.

    **Arguments:**

    - `section`: see `asked`.
    - `units`: SI unit of each number of the scenario, by its dotted path.
    - `before`: what holds where the section says nothing.
    - `clocks`: of the accelerator, so that a range of clocks may be in MHz.

    **Raises:** `InputError` for an unknown key, output, path or unit, and for what is no limit or range.
    """
    before, section = before or Question(), asked(section)
    minimize = section.get("minimize", before.minimize)
    for name, power in parse_objective(minimize).factors:
        if abs(power) > LARGEST_POWER:
            raise InputError(
                f'Objective "{minimize}": {power:g} is no power of {name} to be computed with. Give at most '
                f"{LARGEST_POWER:g}."
            )
    limits = parse_limits(section.get("limits"))
    ranges, knots = _over_progress(section.get("vary", {}), section.get("knots", before.knots))
    vary = {path: _range(path, bounds, units, clocks) for path, bounds in ranges.items()}
    for path in (fix := section.get("fix", [])):
        if path not in units:
            raise InputError(f'fix: unknown path "{path}". {suggest(path, units)}')
    freed = {*vary, *([BATCH] if knots else [])}
    fixed = tuple(dict.fromkeys([*(path for path in before.fix if path not in freed), *fix]))
    if knots and BATCH in fixed:
        raise InputError(f"fix: {BATCH} is to vary at {knots} knots ({BATCH}{OVER_PROGRESS}). Leave one out.")
    tolerance = parse_number(section.get("tolerance", before.tolerance), "1", "tolerance")
    if not 0.0 <= tolerance < 1.0:
        raise InputError(
            f"tolerance: {section['tolerance']} is not a share of the objective. Give for example 0.005 or 0.5 %."
        )
    block = section.get("block", before.block)
    return Question(minimize, {**before.limits, **limits}, {**before.vary, **vary}, fixed, tolerance, knots, block)


def asked(section: Any, where: str = "[optimize]") -> dict[str, Any]:
    """A question as a file, a program or options ask it, with every value of its type; what is None is left out.

    `limits` and `vary` become tables by dotted name, in which a text "NAME=VALUE" is a name and a value; a name
    without a value has "".

    **Raises:** `InputError` for an unknown key, and for the first value that is not what its key needs.
    """
    if not isinstance(section, Mapping):
        raise InputError(f"{where}: a table with {', '.join(_FORMS)} is needed, not {quoted(section)}.")
    for key in section:
        if key not in _FORMS:
            raise InputError(f'{where}: unknown key "{key}". {suggest(str(key), _FORMS)}')
    return {key: _FORMS[key](value, f"optimize.{key}") for key, value in section.items() if value is not None}


def _named(values: Any, where: str) -> dict[str, Any]:
    """Values by dotted name, of a table, nested or not, or of texts "NAME=VALUE"."""
    if isinstance(values, Mapping):
        names = [own_output(name) if callable(name) else name for name in values]
        bounds = ["" if value is None else value for value in values.values()]
        return flat(plain(dict(zip(names, bounds, strict=True)), where), where)
    pairs = {}
    for entry in (values,) if isinstance(values, str) else listed(text)(values, where):
        name, _, value = (part.strip() for part in text(entry, where).partition("="))
        if not name:
            example = _EXAMPLES[where.rpartition(".")[2]]
            raise InputError(f'{where}: "{entry}" names nothing. Write for example "{example}".')
        if pairs.setdefault(name, value) != value:
            raise InputError(f"{where}: {name} is given twice, as {pairs[name]} and as {value}. Keep one.")
    return pairs


def _whole(what: str) -> Form:
    """A whole number, of what the message says."""

    def parse(value: Any, where: str) -> int:
        count = whole_number(value) if isinstance(value, str) else value
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"{where}: {quoted(value)} is not a whole number of {what}.")
        return count

    return parse


_EXAMPLES = {"limits": "time=60 days", "vary": "plan.clock=0.5:1"}
_FORMS = {
    "minimize": lambda value, where: own_output(value) if callable(value) else word(value, where),
    "limits": _named,
    "vary": _named,
    "fix": lambda value, where: [word(value, where)] if isinstance(value, str) else listed(word)(value, where),
    "tolerance": lambda value, where: value if isinstance(value := plain(value, where), str) else number(value, where),
    "knots": _whole(f"knots. Give 2 to {MOST_KNOTS}, or 0 for none"),
    "block": _whole("chips. Give for example 64, or 0 for a node"),
}


def _over_progress(vary: Mapping[str, Any], knots: int) -> tuple[dict[str, Any], int]:
    """Ranges without the schedule that they ask for, and its knots: `plan.batch@0..1:16=LOW:HIGH`."""
    ranges: dict[str, Any] = {}
    for path, bounds in vary.items():
        name, over, count = path.strip().partition(OVER_PROGRESS)
        if over and name != BATCH:
            raise InputError(f"vary {name}{over}: only {BATCH} follows the progress of a run. Leave out {over}.")
        if over:
            number = whole_number(count.removeprefix(":")) if count.startswith(":") else None
            if count and number is None:
                raise InputError(f"vary {path}: give the knots as {over}:8, a whole number.")
            knots = USUAL_KNOTS if number is None else number
        if bounds or not over:
            if over and name in ranges:
                raise InputError(f"vary {name}: given twice, as {ranges[name]} and as {bounds}. Keep one.")
            ranges[name if over else path] = bounds
    if knots == 1 or knots > MOST_KNOTS:
        raise InputError(f"knots: {knots!r} make no schedule of {BATCH}. Give 2 to {MOST_KNOTS}, or 0 for none.")
    return ranges, knots


def parse_limits(limits: Limits | None) -> dict[str, float]:
    """Limits in SI by name of output.

    **Raises:** `InputError` for an unknown output, or a value that is not positive or has another unit.
    """
    values = _named(() if limits is None else limits, "limits")
    for name, value in values.items():
        if value == "":
            raise InputError(f'limit: "{name}" is not NAME=VALUE. Write for example "{_EXAMPLES["limits"]}".')
    return {name: parse_limit(name, value) for name, value in values.items()}


def _unit(path: str, units: Mapping[str, str]) -> str:
    return "token" if path == TOKENS else units[path]


def _refuse_component(name: str, path: str, units: Mapping[str, str]) -> None:
    """Refuse a path of several numbers, which has no range, with the way to choose among its presets or words."""
    word, part = path.rpartition(".")[2], next((other for other in units if other.startswith(f"{path}.")), "")
    if path.startswith(LAYOUT) and word in WORDS:
        raise InputError(f"{name}: a word for several fields of the layout. {WORDS[word]}")
    if path in units or not (part or word in COMPARED):
        return
    each = f"energymodel compare --{word} NAME" if word in COMPARED else f"--set {path}=NAME"
    ways = [f"Optimize with each preset ({each})"] if word in COMPARED or path.startswith("system.") else []
    ways += [f"vary a number of it, such as {part}"] if part else []
    way = ", or ".join(ways)
    raise InputError(f"{name}: a component, which has no range. {way[0].upper()}{way[1:]}.")


def _range(path: str, bounds: Any, units: Mapping[str, str], clocks: ClockScale | None) -> tuple[float, ...]:
    """Range of a variable in SI, or values of a field of the layout; a low text without a unit takes the high one's."""
    name = f"vary {path}"
    if path == "plan.goal.loss":
        raise InputError(f"{name}: the loss is held at its limit. Limit the loss instead, or minimize it.")
    if path.startswith("model."):
        raise InputError(
            f"{name}: the shape of the model is searched by `energymodel optimize --vary model.*`, in Python by "
            "energymodel.optimize_architecture."
        )
    _refuse_component(name, path, units)
    if bounds == "":
        raise InputError(f'vary: "{path}" is not PATH=LOW:HIGH. Write for example "{_EXAMPLES["vary"]}".')
    if path != TOKENS and path not in units:
        raise InputError(f'vary: unknown path "{path}". {suggest(path, units)}')
    is_list = isinstance(bounds, str) and "," in bounds
    ends = [part.strip() for part in bounds.split("," if is_list else ":")] if isinstance(bounds, str) else bounds
    if not isinstance(ends, list) or any(end == "" or isinstance(end, list) for end in ends):
        ends = []
    if path.startswith(LAYOUT) and (is_list or len(ends) > 2) and ends:
        values = sorted({parse_number(end, "1", name) for end in ends})
        return (*values, values[-1])
    if is_list or len(ends) != 2:
        instead = f"; `energymodel sweep --axis {path}={bounds}` evaluates a list" * is_list
        raise InputError(f"{name}: {bounds!r} is not a range. Give LOW:HIGH, such as plan.clock=0.5:1{instead}.")
    unit, (low, high) = _unit(path, units), ends
    scale = clocks if path == CLOCK else None
    shares_unit = is_frequency(high) if scale else unit != "1" and isinstance(high, str)
    if shares_unit and isinstance(low, str) and not _unit_of(low):
        low = f"{low} {_unit_of(high)}"
    if scale:
        low, high = (scale.share(end, name) for end in (low, high))
    lower, upper = (parse_number(end, unit, name) for end in (low, high))
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise InputError(f"{name}: {low} to {high} is not a range of finite numbers.")
    if lower > upper:
        raise InputError(f"{name}: {low} is above {high}. Give the low bound first.")
    if path in POSITIVE and lower <= 0.0:
        raise InputError(f"{name}: {low} is not positive. Give a low bound above zero.")
    return lower, upper


def _unit_of(bound: str) -> str:
    try:
        float(bound)
    except ValueError:
        return bound.lstrip("+-0123456789.,_ ")
    return ""
