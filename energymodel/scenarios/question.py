"""What is asked of a scenario: what to minimize, within which limits, and which numbers may vary?

The `[optimize]` section of a file, the arguments of `optimize` and its sisters, and the options of the command line are
read by the same parser, so that all of them know the same words and answer a mistake with the same message.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.scenarios.clock_scale import CLOCK, ClockScale, is_frequency
from energymodel.scenarios.forms import flat, listed, number, plain, shown, text, word
from energymodel.system.outputs import OutputFunction, own_output, parse_limit, parse_number, parse_objective, unit_of
from energymodel.units import whole_number

KEYS = ("minimize", "limits", "vary", "fix", "tolerance", "knots")
TOLERANCE = 0.005  # plans this much worse than the best are as good
TOKENS = "plan.goal.tokens"  # varies where the loss is an objective, also of a scenario that gives the loss
BATCH, OVER_PROGRESS = "plan.batch", "@0..1"
STAGE_POWER = "plan.power."
USUAL_KNOTS, MOST_KNOTS = 8, 32
LARGEST_POWER = 100.0  # of an output in an objective: 1e30 J to more than it overflows
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

    `tolerance` is the share by which the objective of a plan may exceed the lowest, to save something else; `knots`
    those of a batch that follows the progress of the run, 0 for a constant one.
    """

    minimize: str = "energy"
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    vary: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    fix: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    knots: int = 0

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
            "vary": {
                path: [f"{bound!r} {_unit(path, units)}" for bound in bounds] for path, bounds in self.vary.items()
            },
            "fix": list(self.fix),
            "knots": self.knots,
        }
        asked = {key: value for key, value in section.items() if value}
        return asked if self.tolerance == TOLERANCE else {**asked, "tolerance": self.tolerance}


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
    before, given = before or Question(), asked(section)
    minimize = given.get("minimize", before.minimize)
    _check_objective(minimize)
    limits = parse_limits(given.get("limits"))
    wanted, over_progress = _over_progress(given.get("vary", {}))
    knots = _checked_knots(given.get("knots") if over_progress is None else over_progress, before.knots)
    vary = {path: _range(path, bounds, units, clocks) for path, bounds in wanted.items()}
    fix = list(given.get("fix", ()))
    for path in fix:
        if path not in units:
            raise InputError(f'fix: unknown path "{path}". {suggest(path, units)}')
    kept = [path for path in before.fix if path not in vary]
    fixed = tuple(dict.fromkeys([*kept, *fix]))
    tolerance = _tolerance(given["tolerance"]) if "tolerance" in given else before.tolerance
    if knots and BATCH in fixed:
        raise InputError(f"fix: {BATCH} is to vary at {knots} knots ({BATCH}{OVER_PROGRESS}). Leave one out.")
    return Question(minimize, {**before.limits, **limits}, {**before.vary, **vary}, fixed, tolerance, knots)


def asked(section: Any, where: str = "[optimize]") -> dict[str, Any]:
    """A question as a file, a program or options ask it, with every value of its type; what is None is left out.

    `limits` and `vary` become tables by dotted name, in which a text "NAME=VALUE" is a name and a value; a name
    without a value has "".

    **Raises:** `InputError` for an unknown key, and for the first value that is not what its key needs.
    """
    if not isinstance(section, Mapping):
        raise InputError(f"{where}: a table with {', '.join(KEYS)} is needed, not {shown(section)}.")
    found = {}
    for key, value in section.items():
        if key not in KEYS:
            raise InputError(f'{where}: unknown key "{key}". {suggest(str(key), KEYS)}')
        if value is not None:
            found[key] = _FORMS[key](value, f"optimize.{key}")
    return found


def _minimized(given: Any, where: str) -> str:
    return own_output(given) if callable(given) else word(given, where)


def _paths(given: Any, where: str) -> list[str]:
    return [word(given, where)] if isinstance(given, str) else listed(word)(given, where)


def _scalar(given: Any, where: str) -> Any:
    found = plain(given, where)
    return found if isinstance(found, str) else number(found, where)


def _named(given: Any, where: str) -> dict[str, Any]:
    """Values by dotted name, of a table, nested or not, or of texts "NAME=VALUE"."""
    if isinstance(given, Mapping):
        own = {own_output(key) if callable(key) else key: "" if one is None else one for key, one in given.items()}
        return flat(plain(own, where), where)
    found = {}
    for one in (given,) if isinstance(given, str) else listed(text)(given, where):
        name, _, value = (part.strip() for part in text(one, where).partition("="))
        if not name:
            raise InputError(
                f'{where}: "{one}" names nothing. Write for example "{_EXAMPLES[where.rpartition(".")[2]]}".'
            )
        found[name] = value
    return found


def _schedule(given: Any, where: str) -> int:
    count = whole_number(given) if isinstance(given, str) else given
    if isinstance(count, bool) or not isinstance(count, int):
        raise InputError(
            f"{where}: {shown(given)} is not a whole number of knots. Give 2 to {MOST_KNOTS}, or 0 for none."
        )
    return count


_EXAMPLES = {"limits": "time=60 days", "vary": "plan.clock=0.5:1"}
_FORMS = {
    "minimize": _minimized,
    "limits": _named,
    "vary": _named,
    "fix": _paths,
    "tolerance": _scalar,
    "knots": _schedule,
}


def _check_objective(minimize: str) -> None:
    """Check that an objective exists and that its powers can be computed with.

    **Raises:** `InputError`.
    """
    for name, power in parse_objective(minimize).factors:
        if abs(power) > LARGEST_POWER:
            raise InputError(
                f'Objective "{minimize}": {power:g} is no power of {name} to be computed with. Give at most '
                f"{LARGEST_POWER:g}."
            )


def _over_progress(vary: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Ranges without the schedule that they ask for, and its knots: `plan.batch@0..1:16=LOW:HIGH`.

    **Raises:** `InputError` for a path that has no schedule.
    """
    rest: dict[str, Any] = {}
    knots = None
    for path, bounds in vary.items():
        name, over, count = path.strip().partition(OVER_PROGRESS)
        if over:
            knots = _knots(name, count)
        if bounds or not over:
            rest[name if over else path] = bounds
    return rest, knots


def _checked_knots(asked: Any, before: int) -> int:
    """Knots of the batch: what is asked, or what held before."""
    knots = before if asked is None else asked
    if isinstance(knots, bool) or not isinstance(knots, int) or knots < 0 or knots == 1 or knots > MOST_KNOTS:
        raise InputError(f"knots: {knots!r} make no schedule of {BATCH}. Give 2 to {MOST_KNOTS}, or 0 for none.")
    return knots


def _knots(path: str, count: str) -> int:
    if path != BATCH:
        raise InputError(f"vary {path}{OVER_PROGRESS}: only {BATCH} follows the progress of a run. Leave out @0..1.")
    if not count:
        return USUAL_KNOTS
    number = whole_number(count.removeprefix(":"))
    if not count.startswith(":") or number is None:
        raise InputError(f"vary {path}{OVER_PROGRESS}{count}: give the knots as {OVER_PROGRESS}:8, a whole number.")
    return number


def _tolerance(given: Any) -> float:
    tolerance = parse_number(given, "1", "tolerance")
    if not 0.0 <= tolerance < 1.0:
        raise InputError(f"tolerance: {given} is not a share of the objective. Give for example 0.005 or 0.5 %.")
    return tolerance


def parse_limits(limits: Limits | None) -> dict[str, float]:
    """Limits in SI by name of output.

    **Raises:** `InputError` for an unknown output, or a value that is not positive or has another unit.
    """
    found = {}
    for name, value in _named(() if limits is None else limits, "limits").items():
        if value == "":
            raise InputError(f'limit: "{name}" is not NAME=VALUE. Write for example "{_EXAMPLES["limits"]}".')
        found[name] = parse_limit(name, value)
    return found


def _unit(path: str, units: Mapping[str, str]) -> str:
    return "token" if path == TOKENS else units[path]


def _range(path: str, bounds: Any, units: Mapping[str, str], clocks: ClockScale | None) -> tuple[float, float]:
    """Range of a variable in SI: numbers are in SI, a low text without a unit has that of the high one."""
    if path == "plan.goal.loss":
        raise InputError(f"vary {path}: the loss is held at its limit. Limit the loss instead, or minimize it.")
    if path.startswith("model."):
        raise InputError(
            f"vary {path}: the shape of the model is searched by `energymodel optimize --vary model.*`, in Python by "
            "energymodel.search.optimize_architecture."
        )
    if bounds == "":
        raise InputError(f'vary: "{path}" is not PATH=LOW:HIGH. Write for example "{_EXAMPLES["vary"]}".')
    if path != TOKENS and path not in units:
        raise InputError(f'vary: unknown path "{path}". {suggest(path, units)}')
    ends = [part.strip() for part in bounds.split(":")] if isinstance(bounds, str) else bounds
    if not isinstance(ends, list) or len(ends) != 2 or any(one == "" or isinstance(one, list) for one in ends):
        raise InputError(f"vary {path}: {bounds!r} is not a range. Give LOW:HIGH, such as plan.clock=0.5:1.")
    unit, (low, high) = _unit(path, units), ends
    if path == CLOCK and clocks:
        if is_frequency(high) and isinstance(low, str) and not _unit_of(low):
            low = f"{low} {_unit_of(high)}"
        low, high = (clocks.share(end, f"vary {path}") for end in (low, high))
    if unit != "1" and isinstance(low, str) and isinstance(high, str) and not _unit_of(low):
        low = f"{low} {_unit_of(high)}"
    name = f"vary {path}"
    lower, upper = (parse_number(end, unit, name) for end in (low, high))
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise InputError(f"{name}: {low} to {high} is not a range of finite numbers.")
    if lower > upper:
        raise InputError(f"{name}: {low} is above {high}. Give the low bound first.")
    if path in POSITIVE and lower <= 0.0:
        raise InputError(f"{name}: {low} is not positive. Give a low bound above zero.")
    return lower, upper


def _unit_of(text: str) -> str:
    try:
        float(text)
    except ValueError:
        return text.lstrip("+-0123456789.,_ ")
    return ""
