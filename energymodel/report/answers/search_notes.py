"""How a search went: limits, restarts, ties and refinements, why it failed, and the command for its plan."""

import math
from collections.abc import Mapping

import numpy as np

from energymodel.report.answer import Number, Sentence, number, share, spaced
from energymodel.report.command_text import command_of, exact
from energymodel.report.fields import Field, plan_fields
from energymodel.report.number import sentence
from energymodel.search.result import OBEYS_LIMITS_ASKED, NearTie, Optimum, Refinement
from energymodel.search.training_run import TrainingRun
from energymodel.system.facility import NO_LIMIT
from energymodel.system.outputs import objective_value

_SAME = 1e-4  # relative difference of an objective that no one minds
_COMPARED = ("plan.chips", "plan.batch", "plan.clock", "plan.coolant_temperature")
_DEGREES = ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch")


def limits_asked(optimum: Optimum) -> list[Sentence]:
    """The limits of the search. Those of shares are 1, and stand in the table of margins."""
    units = optimum.limit_units
    numbers = {
        name: number(value, units.get(name, "1"))
        for name, value in optimum.limits.items()
        if name == "chips" or units[name] != "1" or not math.isclose(value, 1.0, rel_tol=1e-6)
        if value < NO_LIMIT or units[name] not in ("W", "W/s")
    }
    asked = ", ".join(f"{spaced(name)} {{{name}}}" for name in numbers)
    lines = [Sentence(f"Limits: {asked}." if asked else "No limits.", numbers)]
    return lines + ([Sentence(optimum.message)] if OBEYS_LIMITS_ASKED in optimum.message else [])


def search_sentences(optimum: Optimum) -> list[Sentence]:
    """How many layouts were compared, whether restarts agree, how far the second best is, what rounding costs."""
    statistics, minimize, second = optimum.statistics, optimum.minimize, optimum.runner_up
    left, others = statistics["layouts_left"], float(statistics["others_excess"])
    numbers: dict[str, Number] = {"others": share(others), "gap": share(optimum.gap)}
    texts = [
        f"Layouts: {optimum.layouts_considered:,} compared, {optimum.layouts_feasible:,} fit in memory, "
        f"{statistics['layouts_searched']:,} searched."
    ]
    if left:
        texts.append(f"No bound excludes {left:,} of the others: a better plan may be among them.")
    elif math.isfinite(others) and others > 0.0:
        text = f"The others need at least {{others}} more {minimize}: a lower bound, from the prices of the limits at "
        texts.append(f"{text}the best plan.")
    if statistics["restarts"]:
        texts.append(_restarts(statistics))
        numbers["spread"] = share(math.expm1(statistics["restarts_spread"]))
    if second is not None:
        degrees = {name: float(getattr(second.layout, name)) for name in _DEGREES}
        listed = ", ".join(f"{spaced(name)} {degree:g}" for name, degree in degrees.items() if degree != 1.0)
        layout = f"The second-best layout ({listed or 'data parallelism alone'})"
        texts.append(f"{layout} needs {{second}} more {minimize} than the best.")
        numbers["second"] = share(second.excess)
    if math.isfinite(optimum.gap):
        cost = "at most {gap}" if optimum.gap >= _SAME else "less than 0.01 %"
        texts.append(f"Rounding to whole numbers costs {cost}.")
    return [
        *(Sentence(text, numbers) for text in texts),
        *([near_tie_sentence(optimum, optimum.near_tie)] if optimum.near_tie is not None else []),
        *(refinement_sentence(optimum, refinement) for refinement in optimum.refinements),
    ]


def _restarts(statistics: Mapping[str, int | float]) -> str:
    count, agreeing, astray = (statistics[name] for name in ("restarts", "restarts_agreeing", "restarts_astray"))
    text = f"{agreeing} of {count} restarts of the best layout converge to the same optimum"
    text += f"; {astray} do not converge" if astray else ""
    if agreeing + astray < count:
        is_close = math.expm1(statistics["restarts_spread"]) < _SAME
        text += f"; the others end {'less than 0.01 %' if is_close else 'at most {spread}'} above it"
    return f"{text}."


def refinement_sentence(optimum: Optimum, refinement: Refinement) -> Sentence:
    """What a batch that follows the progress, or power by stage, saves beside the best plan without."""
    added = refinement.added
    numbers = {
        "batch": number(float(np.ravel(refinement.plan.batch)[0]), "token"),
        "clock": number(refinement.outcome.clock, kind="share"),
        "share": share(refinement.saving / float(objective_value(refinement.outcome, optimum.minimize))),
    }
    beside = " and ".join(["a batch of {batch}"] * bool(added.knots) + ["a clock of {clock}"] * bool(added.stages))
    unsure = "" if refinement.converged else " Its search did not converge: a better one may exist."
    saves = "nothing" if refinement.saving <= 0.0 else f"{{share}} {optimum.minimize}"
    return Sentence(f"{added.names.capitalize()} saves {saves} beside the best plan with {beside}.{unsure}", numbers)


def near_tie_sentence(optimum: Optimum, tie: NearTie) -> Sentence:
    """What the last tenths of a percent of the objective cost in energy or money."""
    shares = {"near": tie.tolerance, "saving": tie.saving, "cost": max(tie.cost, 0.0)}
    numbers = {name: share(part) for name, part in shares.items()}
    numbers["more"] = share(tie.saving / (1.0 - tie.saving))
    near = f"{{near}} of the lowest {optimum.minimize}"
    if not tie.taken:
        text = f"No plan within {near} saves more than {{saving}} {tie.saved}; that one takes {{cost}} more."
        return Sentence(text, numbers)
    fields = {field.name: field for field in plan_fields(tie.plan)}
    own = {field.name: field.value for field in plan_fields(optimum.plan)}
    differing = [fields[name] for name in _COMPARED if name in fields and fields[name].value != own[name]]
    for field in differing:
        numbers[field.name] = number(field.value, field.unit, "share" if field.name == "plan.clock" else "")
    differs = ", ".join(f"{field.title} {{{field.name}}}" for field in differing)
    return Sentence(
        f"Many plans come within {near}; of these, this one takes the lowest {tie.saved}. The plan of the lowest "
        f"{optimum.minimize}{f' ({differs})' if differs else ''} saves {{cost}} more {optimum.minimize}, and takes "
        f"{{more}} more {tie.saved}. --tolerance 0 finds it.",
        numbers,
    )


def failure(optimum: Optimum) -> str:
    """Why there is no trusted answer, and what to do next, in one line: limits that exclude each other."""
    parts = [optimum.message or str(optimum.result)]
    for conflict in optimum.conflicts:
        if conflict.limit not in parts[0]:
            numbers = {name: number(getattr(conflict, name), conflict.unit) for name in ("asked", "nearest")}
            text = f"{conflict.limit}: asked {{asked}}, nearest feasible {{nearest}}."
            parts.append(sentence(Sentence(text, numbers)))
    return " ".join(" ".join(part.split()) for part in parts)


def chosen_of_system(optimum: Optimum) -> dict[str, tuple[Field, Field]]:
    """Own and found value of the numbers of the system that were varied, by path."""
    run, origins = TrainingRun(optimum.scenario.system, optimum.scenario.plan), optimum.scenario.provenance

    def number_at(path: str, value: float) -> Field:
        return Field(path, path, origins[path].unit, value)

    return {
        path: (number_at(path, run.number(path)), number_at(path, value))
        for path, value in optimum.found.items()
        if path.startswith("system.")
    }


def evaluate_command(optimum: Optimum) -> str:
    """The command that evaluates the plan of a search."""
    chosen = {path: exact(value) for path, (_, value) in chosen_of_system(optimum).items()}
    return command_of(optimum.scenario, optimum.plan, chosen)
