"""Which reduction does a word such as "top:10" stand for?"""

from collections.abc import Callable, Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.sweeps.along import BestAlong
from energymodel.sweeps.distribution import Histogram, Quantiles
from energymodel.sweeps.front_reduction import Pareto, ParetoBins
from energymodel.sweeps.full import Full
from energymodel.sweeps.reductions import AbstractReduction, Count, Range, Top

Value = str | Callable[[Any], Any] | None
Limits = Mapping[str, Range]


def reduction_of(keep: str | AbstractReduction, value: Value, limits: Limits) -> AbstractReduction:
    """A reduction by its word.

    **Raises:** `InputError` for an unknown word, or where nothing says what to minimize.
    """
    if isinstance(keep, AbstractReduction):
        return keep
    word, _, argument = (part.strip() for part in keep.partition(":"))
    if word not in WORDS:
        raise InputError(f'keep: unknown "{keep}". Choose {", ".join(WORDS)}.')
    return WORDS[word](argument, value, limits)


def _best(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    return Top(_needed(value), 1, limits)


def _top(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    if not (argument.isdecimal() and int(argument) > 0):
        raise InputError(f'keep: "top:{argument}" has no number of points. Write for example top:10.')
    return Top(_needed(value), int(argument), limits)


def _along(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    return BestAlong(_needed(value), _names("along", argument, 1, "plan.clock,plan.batch"), limits)


def _pareto(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    return Pareto(_names("pareto", argument, 2, "energy,time"), limits)


def _bins(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    first, second, *rest = _names("bins", argument, 2, "energy,time")
    if rest:
        raise InputError(f'keep: "bins:{argument}" has more than two objectives. Use pareto.')
    return ParetoBins(first, second, limits)


def _count(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    return Count(limits)


def _histogram(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    return Histogram(_names("histogram", argument, 1, "energy,time"), limits)


def _quantiles(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    return Quantiles(_names("quantiles", argument, 1, "energy,time"), limits)


def _full(argument: str, value: Value, limits: Limits) -> AbstractReduction:
    return Full(_names("full", argument, 1, "energy,time"))


def _names(word: str, argument: str, least: int, example: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in argument.split(",") if part.strip())
    if len(names) < least:
        raise InputError(f'keep: "{word}:{argument}" names {len(names)}; at least {least}. Write {word}:{example}.')
    return names


def _needed(value: Value) -> Any:
    if value is None:
        raise InputError("minimize: say which output is wanted least.")
    return value


WORDS: Mapping[str, Callable[[str, Value, Limits], AbstractReduction]] = {
    "best": _best, "top": _top, "along": _along, "pareto": _pareto, "bins": _bins, "count": _count,
    "histogram": _histogram, "quantiles": _quantiles, "full": _full,
}  # fmt: skip
