"""A batch that rises at the beginning of a run: "2 Mi token to 16 Mi token over 5 %", as knots of a schedule."""

import re
from fractions import Fraction
from typing import Any

from energymodel.errors import InputError
from energymodel.system.outputs import parse_number

BATCH = "plan.batch"
MOST_PARTS = 64  # of the progress, into which knots divide it
CLOSE = 0.01  # of the share of progress: by how much knots may miss where the rise ends
_RISE = re.compile(r"\s*(?P<first>.+?)\s+to\s+(?P<last>.+?)\s+over\s+(?P<share>.+?)\s*(of progress)?\s*$")


def batch_knots(given: Any) -> Any:
    """Knots of a batch that is given as a rise over a share of the progress; everything else as it is.

    The logarithm of the batch rises in proportion to progress, the share of the run's effective tokens, then it stays.

    **Raises:** `InputError` for a share that is none, or too small for 65 knots.
    """
    found = _RISE.match(given) if isinstance(given, str) else None
    if not found:
        return given
    share = parse_number(found["share"], "1", BATCH)
    if not 0.0 < share < 1.0:
        raise InputError(f"{BATCH}: {found['share']} is not a share of the progress. Give for example 5 %.")
    nearest = Fraction(share).limit_denominator(MOST_PARTS)
    if abs(float(nearest) - share) > CLOSE * share:
        raise InputError(
            f"{BATCH}: a rise over {found['share']} of the progress is shorter than knots can say. Give at least "
            f"{100 / MOST_PARTS:.3g} %."
        )
    first, last = (parse_number(found[name], "token", BATCH) for name in ("first", "last"))
    if min(first, last) <= 0.0:
        raise InputError(f"{BATCH}: {given!r} has a batch that is not positive. Give tokens above zero.")
    rising, parts = nearest.numerator, nearest.denominator
    shares = [min(1.0, knot / rising) for knot in range(parts + 1)]
    return [f"{first * (last / first) ** share!r} token" for share in shares]
