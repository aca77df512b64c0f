from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.numerics import Real, real
from energymodel.system.evaluate import evaluate
from energymodel_kernels.fused_sweep import Axis, Best, ParetoBins, fused_sweep
from energymodel_kernels.fused_sweep.shapes import TESTED
from energymodel_kernels.fused_sweep.tiles import Tile
from gradients import compiled_once
from sweep_model import sweep_model

NEAR = 3e-6  # relative error of the objective in float32
LIMITS = {"time": 2e4, "temperature": 70.0, "power": 2e6}
MODEL = {
    "batch": (0.05, 64.0, True),
    "clock": (0.5, 2.2, False),
    "nodes": (4.0, 1024.0, True),
    "voltage": (0.6, 1.15, False),
}


class Bowl(eqx.Module):
    """Center and weight of a bowl."""

    center: Real = real("1")
    weight: Real = real("1")


BOWL = Bowl(0.7, 2.0)
BOUND = 9.0


def bowl(point, parameters, xp: Any = jnp):
    """Not a number where the first coordinate is negative; quantities: the sum, and a ratio that overflows at zero."""
    distance = sum((i + 1.0) * (x - parameters.center) ** 2 for i, x in enumerate(point))
    objective = parameters.weight * xp.log(1.0 + distance) + xp.sqrt(point[0])
    return objective, (sum(point), 1.0 / (point[-1] * point[-1]))


def sweep_once(formula, axes, parameters=(), **options):
    return compiled_once(lambda: fused_sweep(formula, axes, parameters, **options))


def bowl_axes(counts):
    """The first axis starts below zero, unless it is a single value; others alternate."""
    axes = {}
    for i, count in enumerate(counts):
        low = -1.0 if i == 0 and count > 1 else 0.25
        axes[f"x{i}"] = Axis(low, 3.0, count, logarithmic=i % 2 == 1)
    return axes


def values(axis):
    return (np.geomspace if axis.logarithmic else np.linspace)(float(axis.low), float(axis.high), axis.count)


def everywhere(formula, axes, limits) -> tuple[Any, Any]:
    """Objective, infinite where not allowed, and quantities at all points, in float64."""
    mesh = np.meshgrid(*map(values, axes.values()), indexing="ij")
    with np.errstate(all="ignore"):
        objective, quantities = formula(mesh)
        allowed = np.isfinite(objective)
        for quantity, limit in zip(quantities, limits, strict=True):
            allowed &= quantity <= limit
    return np.where(allowed, objective, np.inf), quantities


def all_of_bowl(counts, limits=(BOUND, np.inf)):
    return everywhere(lambda mesh: bowl(mesh, BOWL, np), bowl_axes(counts), limits)


def sweep_bowl(counts, implementation, limits=(BOUND, np.inf), **options):
    return sweep_once(bowl, bowl_axes(counts), BOWL, limits=limits, implementation=implementation, **options)


@pytest.mark.parametrize("shape", TESTED)
def test_best_is_that_of_brute_force(implementation, shape):
    counts = TESTED[shape]
    objective, quantities = all_of_bowl(counts)
    best = sweep_bowl(counts, implementation)
    np.testing.assert_allclose(best.objective, [objective.min()], rtol=NEAR)
    index = tuple(int(i[0]) for i in best.index)
    np.testing.assert_allclose(best.objective[0], objective[index], rtol=1e-9)
    np.testing.assert_allclose([q[0] for q in best.quantities], [q[index] for q in quantities], rtol=1e-9)
    np.testing.assert_allclose(
        [x[0] for x in best.point],
        [values(a)[i] for a, i in zip(bowl_axes(counts).values(), index, strict=True)],
        rtol=1e-9,
    )


@pytest.mark.parametrize("count", [2, 32])
def test_top_are_those_of_brute_force(implementation, count):
    # Blocks of 128 points: the best ones share programs, and some programs hold none.
    counts = TESTED["outer and inner"]
    tile = Tile(2, 128, 4) if implementation != "pallas_tpu" else Tile(2, 1024, 2)
    options = {} if implementation == "xla" else {"tile": tile}
    top = sweep_bowl(counts, implementation, keep=Best(count), **options)
    expected = np.sort(all_of_bowl(counts)[0], axis=None)[:count]
    np.testing.assert_allclose(top.objective, expected, rtol=NEAR)
    assert len(set(zip(*map(np.asarray, top.index), strict=True))) == count


def test_fewer_points_than_wanted(implementation):
    top = sweep_bowl((4, 3), implementation, keep=Best(32))
    expected = np.sort(all_of_bowl((4, 3))[0], axis=None)
    expected = expected[np.isfinite(expected)]
    assert np.count_nonzero(top.found) == expected.size
    np.testing.assert_allclose(top.objective[: expected.size], expected, rtol=NEAR)
    assert np.all(np.isinf(top.objective[expected.size :]))


@pytest.mark.parametrize("logarithmic", [False, True])
def test_bins_are_those_of_brute_force(implementation, logarithmic):
    counts, bins = TESTED["outer and inner"], 6
    keep = ParetoBins(0, 1.37, 8.11, bins, logarithmic)
    result = sweep_bowl(counts, implementation, keep=keep)
    objective, quantities = all_of_bowl(counts)
    edges = (np.geomspace if logarithmic else np.linspace)(keep.low, keep.high, bins + 1)
    position = np.clip(np.searchsorted(edges, quantities[0], side="right") - 1, 0, None)
    expected = [
        np.min(objective[(position == number) & (quantities[0] <= keep.high)], initial=np.inf) for number in range(bins)
    ]
    np.testing.assert_allclose(result.objective, expected, rtol=1e-3)  # a point may fall beside an edge in float32
    assert np.sum(np.isclose(result.objective, expected, rtol=NEAR)) >= bins - 1
    running = np.minimum.accumulate([np.inf, *expected[:-1]])
    np.testing.assert_array_equal(result.front, np.asarray(expected) < running)


@pytest.mark.parametrize("keep", [Best(), Best(3), ParetoBins(0, 1.0, 5.0, 3)], ids=["best", "top", "bins"])
def test_nothing_is_feasible(implementation, keep):
    none = sweep_bowl(TESTED["ragged"], implementation, limits=(-100.0, np.inf), keep=keep)
    assert not np.any(none.found)
    assert np.all(np.isinf(none.objective))
    assert np.all(np.stack(none.index) == -1)
    assert np.all(np.isnan(np.stack([*none.point, *none.quantities])))


def test_whatever_is_no_number_is_left_out(implementation):
    # Objective, limited quantity, or both are no numbers where x < 1; an infinitely good objective is no answer.
    def formula(point, offset):
        (x,) = point
        bad = jnp.sqrt(x - 1.0 + offset)
        return jnp.where(x > 3.0, -jnp.inf, x), (bad, jnp.where(x < 1.0, jnp.nan, 0.0))

    axes = {"x": Axis(0.0, 4.0, 401)}
    best = sweep_once(formula, axes, 0.0, limits=(np.inf, np.inf), implementation=implementation, keep=Best(3))
    np.testing.assert_allclose(best.objective, [1.0, 1.01, 1.02], rtol=1e-6)


def test_first_of_equal_points_is_kept(implementation):
    best = sweep_once(
        lambda point, _: (jnp.maximum(point.x, 2.0) + 0.0 * point.y, ()),
        {"x": Axis(0.0, 4.0, 41), "y": Axis(0.0, 1.0, 40)},
        implementation=implementation,
    )
    assert [int(i[0]) for i in best.index] == [0, 0]


def model(point, scale):
    energy, time, temperature, power = sweep_model(*point, xp=jnp)
    return scale * energy, (time, temperature, power)


def model_axes(*counts):
    return {
        name: Axis(low, high, count, log) for (name, (low, high, log)), count in zip(MODEL.items(), counts, strict=True)
    }


def model_everywhere(*counts):
    def formula(mesh):
        energy, *quantities = sweep_model(*mesh, xp=np)
        return energy, quantities

    return everywhere(formula, model_axes(*counts), LIMITS.values())[0]


def test_model_of_a_training_run(implementation):
    counts = (6, 7, 31, 41)
    best = sweep_once(model, model_axes(*counts), 1.0, limits=tuple(LIMITS.values()), implementation=implementation)
    np.testing.assert_allclose(best.objective, [model_everywhere(*counts).min()], rtol=1e-5)
    assert all(q[0] <= limit * (1.0 + 1e-5) for q, limit in zip(best.quantities, LIMITS.values(), strict=True))


def test_double_precision_finds_the_very_point():
    counts = (6, 5, 31, 23)
    brute = model_everywhere(*counts)
    for name in ("xla", "interpret"):
        best = sweep_once(
            model, model_axes(*counts), 1.0, limits=tuple(LIMITS.values()), implementation=name, dtype=jnp.float64
        )
        assert tuple(int(i[0]) for i in best.index) == np.unravel_index(np.argmin(brute), counts)
        np.testing.assert_allclose(best.objective, [brute.min()], rtol=1e-12)


def test_gradient_of_the_best_value(implementation):
    counts, axes = (3, 5, 7, 11), bowl_axes((3, 5, 7, 11))
    best = sweep_bowl(counts, implementation, gradient=True)
    point = jax.tree.map(lambda x: x[0], best.point)
    slope = jax.grad(lambda point, parameters: bowl(point, parameters)[0], argnums=(0, 1))(point, BOWL)
    np.testing.assert_allclose(np.asarray(best.gradient.point)[:, 0], slope[0], rtol=1e-12)
    np.testing.assert_allclose(best.gradient.parameters.center[0], slope[1].center, rtol=1e-12)

    def value(weight):
        parameters = eqx.tree_at(lambda bowl: bowl.weight, BOWL, weight)
        return fused_sweep(bowl, axes, parameters, limits=(BOUND, np.inf), implementation=implementation).objective[0]

    values, slope = compiled_once(lambda: (jnp.stack([value(2.001), value(1.999)]), jax.grad(value)(2.0)))
    differences = (values[0] - values[1]) / 0.002
    np.testing.assert_allclose(slope, differences, rtol=1e-7)
    np.testing.assert_allclose(best.gradient.parameters.weight[0], differences, rtol=1e-7)


def test_numbers_that_a_formula_closes_over():
    def value(weight, implementation):
        def formula(point, _):
            return weight * (point.x - 1.0) ** 2 + weight, ()

        return fused_sweep(formula, {"x": Axis(0.0, 3.0, 7)}, implementation=implementation).objective[0]

    for name in ("xla", "interpret"):
        np.testing.assert_allclose(compiled_once(lambda weight, name=name: value(weight, name), jnp.asarray(2.0)), 2.0)


def test_precision_of_the_caller(implementation):
    with jax.enable_x64(False):
        best = sweep_bowl((3, 5), implementation)
        assert best.objective.dtype == jnp.float32
    np.testing.assert_allclose(best.objective, [all_of_bowl((3, 5))[0].min()], rtol=NEAR)


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("keep", [Best(), ParetoBins(0, 1e3, 2e4, 4, True)], ids=["best", "bins"])
def test_lowering(target, keep, approximate):
    def sweep(name, scale):
        limits = tuple(LIMITS.values())
        return fused_sweep(
            model,
            model_axes(5, 6, 30, 41),
            scale,
            limits=limits,
            keep=keep,
            approximate=approximate,
            implementation=name,
        )

    assert target.is_called_by(sweep, 1.0)


def test_the_whole_model_lowers(target, scenario):
    """`evaluate` in the fused kernel, over batch and clock of the README's scenario."""
    case = scenario("llama-3.1-405b-h100")
    plan = eqx.tree_at(lambda plan: plan.batch, case.plan, np.reshape(case.plan.batch, ()))

    def formula(point, parameters):
        system, plan = parameters
        plan = eqx.tree_at(lambda plan: (plan.batch, plan.clock), plan, (point.batch, point.clock))
        outcome = evaluate(system, plan)
        return outcome.energy.total, (outcome.time, -outcome.slack.memory)

    axes = {"batch": Axis(1e6, 1e8, 100, logarithmic=True), "clock": Axis(0.3, 1.0, 100)}
    assert target.is_called_by(
        lambda name: fused_sweep(formula, axes, (case.system, plan), limits=(1e8, 0.0), implementation=name)
    )


def test_bad_input_is_named():
    x = {"x": Axis(0.0, 1.0, 5)}

    def formula(point, parameters):
        return point.x, (point.x,)

    with pytest.raises(ValueError, match="returns 1 quantities, but there are 0 limits"):
        fused_sweep(formula, x)
    with pytest.raises(ValueError, match='implementation = "cuda": choose one of auto, xla'):
        fused_sweep(formula, x, limits=(1.0,), implementation="cuda")
    with pytest.raises(ValueError, match="at least one axis"):
        fused_sweep(formula, {})
    with pytest.raises(ValueError, match=r"Best\(count=0\)"):
        fused_sweep(formula, x, limits=(1.0,), keep=Best(0))
    with pytest.raises(ValueError, match="low must be below high"):
        fused_sweep(formula, x, limits=(1.0,), keep=ParetoBins(0, 0.0, 1.0, 4, logarithmic=True))
    with pytest.raises(ValueError, match=r"parameters\['rows'\] has shape \(3,\)"):
        fused_sweep(formula, x, {"rows": np.ones(3)}, limits=(1.0,), implementation="interpret")
    with pytest.raises(ValueError, match=r"at most .* can be numbered"):
        fused_sweep(formula, {"x": Axis(0.0, 1.0, 2**31)}, limits=(1.0,), implementation="interpret")
    with pytest.raises(ValueError, match="an axis has 0 values"):
        Axis(0.0, 1.0, 0)
