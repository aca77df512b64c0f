"""In which order of its axes is a grid cheapest?

Nested `vmap` evaluates an operation only on the axes that its operands depend on, so a chunk is cheap whose axes few
costly operations share. The operations of the traced model say which those are.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from energymodel.sweeps.axes import Axis, cast
from energymodel.sweeps.reductions import AbstractReduction

WEIGHTS = {"div": 4.0, "sqrt": 5.0, "rsqrt": 5.0, "exp": 10.0, "exp2": 10.0, "log": 10.0, "pow": 20.0, "lgamma": 50.0}
WEIGHTS |= dict.fromkeys(("log1p", "expm1", "tanh", "logistic", "sin", "cos", "erf"), 15.0)
"""Cost of an operation in multiplications, roughly that of vector code; others cost one."""
START = 100.0  # cost of starting an operation, in multiplications
LOOP_LENGTH = 40.0  # assumed iterations of a loop of unknown length
MAX_AXES = 12  # for which all orders are compared

Costs = dict[frozenset[int], float]


def best_order(
    function: Callable[..., Any], axes: Sequence[Axis], reduction: AbstractReduction, chunk: int
) -> tuple[int, ...]:
    """Order of the axes in which a model is cheapest, outermost first."""
    names = [axis.name for axis in axes]
    scalars = [jax.tree.map(lambda leaf: np.asarray(leaf)[0], cast(axis.values, np.float32)) for axis in axes]
    narrow = cast(function, np.float32)

    def point(*own: Any) -> Any:
        return reduction.pick(narrow(**dict(zip(names, own, strict=True))))

    with jax.enable_x64(False):
        return cheapest_order(costs_by_axes(point, scalars), [len(axis) for axis in axes], chunk)


def costs_by_axes(function: Callable[..., Any], arguments: Sequence[Any]) -> Costs:
    """Cost of the operations of a function, by the set of arguments that they depend on."""
    closed = jax.make_jaxpr(function)(*arguments)
    owners = [frozenset({index}) for index, one in enumerate(arguments) for _ in jax.tree.leaves(one)]
    costs: Costs = {}
    _walk(closed.jaxpr, owners, 1.0, [True] * len(closed.jaxpr.outvars), costs)
    return costs


def _walk(
    jaxpr: Jaxpr, owners: Sequence[frozenset[int]], times: float, wanted: Sequence[bool], costs: Costs
) -> list[frozenset[int]]:
    """Add the costs of what is wanted; the sets that the results depend on."""
    known: dict[Any, frozenset[int]] = dict(zip(jaxpr.invars, owners, strict=True))
    live = {var for var, want in zip(jaxpr.outvars, wanted, strict=True) if want and not isinstance(var, Literal)}
    needed = []
    for equation in reversed(jaxpr.eqns):
        if any(var in live for var in equation.outvars):
            needed.append(equation)
            live |= {var for var in equation.invars if not isinstance(var, Literal)}

    def owner(var: Any) -> frozenset[int]:
        return frozenset() if isinstance(var, Literal) else known.get(var, frozenset())

    for equation in reversed(needed):
        given = [owner(var) for var in equation.invars]
        union = frozenset().union(*given)
        inner = list(_inner(equation.params))
        results = [union] * len(equation.outvars)
        if len(inner) == 1 and len(inner[0].invars) == len(given) and equation.primitive.name not in ("while", "scan"):
            results = _walk(inner[0], given, times, [var in live for var in equation.outvars], costs)
        elif inner:
            length = float(equation.params.get("length", LOOP_LENGTH if equation.primitive.name == "while" else 1.0))
            for body in inner:
                _walk(body, [union] * len(body.invars), times * length, [True] * len(body.outvars), costs)
        else:
            cost = times * WEIGHTS.get(equation.primitive.name, 1.0)
            costs[union] = costs.get(union, 0.0) + cost
        known.update(zip(equation.outvars, results, strict=True))
    return [owner(var) for var in jaxpr.outvars]


def _inner(parameters: dict[str, Any]) -> list[Jaxpr]:
    """Programs within an operation, such as the body of a loop."""
    ones = [one for value in parameters.values() for one in (value if isinstance(value, tuple | list) else (value,))]
    return [one.jaxpr if isinstance(one, ClosedJaxpr) else one for one in ones if isinstance(one, ClosedJaxpr | Jaxpr)]


def cheapest_order(costs: Costs, sizes: Sequence[int], chunk: int) -> tuple[int, ...]:
    """Order of the axes, outermost first, in which the grid is cheapest in chunks of so many points.

    All choices of the axes within a chunk are compared, and of the axis that is cut to fill it. Within a chunk the
    longest axis comes last, where it fills vector registers.
    """
    count = len(sizes)
    if count > MAX_AXES:
        return tuple(range(count))
    best: tuple[float, tuple[int, ...]] | None = None
    for inner in (set(one) for size in range(count + 1) for one in itertools.combinations(range(count), size)):
        volume = math.prod(sizes[axis] for axis in inner)
        if volume > chunk and len(inner) > 1:
            continue
        rest = [axis for axis in range(count) if axis not in inner]
        for cut in rest or [None]:
            block = 1 if cut is None else min(sizes[cut], max(1, chunk // volume))
            if cut is not None and block == sizes[cut] and len(rest) > 1:
                continue  # it fits as a whole: that is another choice of the inner axes
            extents = {axis: sizes[axis] for axis in inner} | ({} if cut is None else {cut: block})
            per_point = sum(
                cost * math.prod(extents[axis] for axis in axes if axis in extents) for axes, cost in costs.items()
            ) / math.prod(extents.values())
            lead = [axis for axis in rest if axis != cut]
            order = (*lead, *(() if cut is None else (cut,)), *sorted(inner, key=lambda axis: (sizes[axis], axis)))
            # A short chunk costs as its operations start.
            per_point += START * sum(costs.values()) / math.prod(extents.values())
            if best is None or per_point < best[0] * (1.0 - 1e-9):
                best = (per_point, order)
    return best[1] if best is not None else tuple(range(count))
