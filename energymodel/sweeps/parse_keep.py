"""Which reduction does a text such as "top:10" ask for?"""

from collections.abc import Mapping

from energymodel.errors import InputError
from energymodel.sweeps.best_points import BestAlong, Top
from energymodel.sweeps.feasibility import Output, Range
from energymodel.sweeps.full_array import FullArray
from energymodel.sweeps.histogram import Count, Histogram, quantiles
from energymodel.sweeps.pareto_bins import ParetoBins
from energymodel.sweeps.pareto_points import Pareto
from energymodel.sweeps.reductions import AbstractReduction
from energymodel.units import whole_number

MOST_POINTS = 10**6
"""Points that `top` keeps: each is evaluated once more, and the state of every chunk has room for all."""
WORDS = ("best", "top", "along", "pareto", "bins", "count", "histogram", "quantiles", "full")


def parse_keep(
    keep: str | AbstractReduction, minimize: Output | None, limits: Mapping[str, Range]
) -> AbstractReduction:
    """The reduction that a text asks for; a reduction is taken as it is.

    **Raises:** `InputError` for an unknown word or a bad argument, or where nothing says what to minimize.
    """
    if isinstance(keep, AbstractReduction):
        return keep
    word, _, argument = (part.strip() for part in keep.partition(":"))
    names = tuple(part.strip() for part in argument.split(",") if part.strip())

    def listed(at_least: int, example: str = "energy,time") -> tuple[str, ...]:
        if len(names) < at_least:
            raise InputError(
                f'keep: "{keep}" names {len(names)}; it needs at least {at_least}. Write {word}:{example}.'
            )
        return names

    def minimized() -> Output:
        if minimize is None:
            raise InputError(f'minimize: keep "{keep}" needs to know which output to minimize. Name one.')
        return minimize

    match word:
        case "best":
            return Top(minimized(), 1, limits)
        case "top":
            count = whole_number(argument)
            if count is None or not 1 <= count <= MOST_POINTS:
                raise InputError(
                    f'keep: "{keep}" has no number of points, 1 to {MOST_POINTS:,}. Write for example top:10.'
                )
            return Top(minimized(), count, limits)
        case "along":
            return BestAlong(minimized(), listed(1, "plan.clock,plan.batch"), limits)
        case "pareto":
            return Pareto(listed(2), limits)
        case "bins":
            first, second, *rest = listed(2)
            if rest:
                raise InputError(f'keep: "{keep}" has more than two objectives. Use pareto.')
            return ParetoBins(first, second, limits)
        case "count":
            return Count(limits)
        case "histogram":
            return Histogram(listed(1), limits)
        case "quantiles":
            return Histogram(listed(1), limits, summary=quantiles)
        case "full":
            return FullArray(listed(1))
    raise InputError(f'keep: unknown "{keep}". Choose from {", ".join(WORDS)}.')
