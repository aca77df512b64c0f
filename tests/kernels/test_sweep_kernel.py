"""The fused kernel as the program of a sweep: the same points as by XLA, or a reason why it cannot be."""

import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.sweep import prepare_sweep
from energymodel_kernels.fused_sweep.tile_program import KernelTileProgram, steps_of
from energymodel_kernels.sweep_kernel import KERNELS, sweep_kernel
from sweeps.sweep_models import LIMITS, axes, sweep_model

forced = partial(sweep_kernel, forced=True)


def bowl(x, y, shift):
    value = (x - 1.0) ** 2 + jnp.log(y) ** 2 + shift
    return {"value": value, "sum": x + y}


def test_points_are_those_of_xla():
    # 41 voltages in two blocks: the last one is padded.
    case = (sweep_model, axes(3, 4, 31, 41), "top:5")
    options = {"minimize": "energy", "limits": LIMITS, "chunk": 1000, "tile": 4000}
    by_xla, by_kernel = em.sweep(*case, **options), em.sweep(*case, kernel=forced, **options)
    assert by_kernel.grid.tiles > 1
    assert by_kernel.grid.blocks * by_kernel.grid.block > len(by_kernel.grid.axes[by_kernel.grid.cut])
    assert by_kernel.choice.sentence() == "Evaluated by interpret: it was asked for."
    assert by_kernel.winners == by_xla.winners
    assert len(by_kernel.winners) == 5


@pytest.mark.parametrize("chunk", [40, 10_000], ids=["in blocks", "in one chunk"])
def test_values_at_uneven_distances_are_parameters(chunk):
    axes = {"shift": [0.5, 0.1, 0.7, 0.2, 0.15], "x": "-3:3:7", "y": "0.1..10 log 5"}
    run = partial(em.sweep, bowl, axes, "top:9", minimize="value", limits={"sum": (1.0, 6.0)}, order=list(axes))
    by_xla, by_kernel = run(chunk=chunk, tile=chunk), run(chunk=chunk, tile=chunk, kernel=forced)
    assert by_kernel.choice.program == "interpret"
    assert by_kernel.winners == by_xla.winners
    # x = y = 1 with the lowest shift is one of the points.
    assert by_kernel.best.value == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [([1.0, 2.0, 3.0], False), ([8.0, 4.0, 2.0], True), ([5.0], False), ([0.0, 1.0], False), ([1.0, 2.0, 4.5], None)],
)
def test_steps_of_an_axis(values, logarithmic):
    steps = steps_of(Axis.of("x", values))
    assert (steps and steps.logarithmic) == logarithmic
    if steps is not None:
        np.testing.assert_allclose(steps.value(values[0], np.arange(len(values), dtype=np.float32)), values, rtol=1e-6)


def test_what_a_kernel_cannot_evaluate_is_said():
    axes = {"y": "0.1..10 log 5", "shift": "0:1:3", "x": [-3.0, 0.0, 1.0]}
    run = partial(em.sweep, bowl, axes, minimize="value", order=list(axes))
    assert run(kernel=sweep_kernel).choice.sentence() == "Evaluated by XLA: on a CPU a kernel is only interpreted."
    with pytest.raises(InputError, match=r"kernel: a kernel keeps best and top only\. Leave it out"):
        run("pareto:value,sum", kernel=forced)
    with pytest.raises(InputError, match="at most top:993"):
        run("top:1000", kernel=forced)
    with pytest.raises(InputError, match="32 bits"):
        run(precision=64, kernel=forced)
    with pytest.raises(InputError, match="equal steps or ratios of x"):
        run(kernel=forced)


def test_a_worker_gets_the_same_program():
    prepared = prepare_sweep(sweep_model, axes(2, 3, 4, 5), "best", "energy", LIMITS)
    program = forced(prepared.program)
    assert not isinstance(program, str)
    copy = pickle.loads(pickle.dumps(program.program))
    assert (type(copy), copy.name) == (KernelTileProgram, "interpret")
    jax.tree.map(np.testing.assert_array_equal, copy.run(0), program.program.run(0))


@pytest.mark.parametrize("target", KERNELS.values(), indirect=True)
def test_a_scenario_lowers(target, scenario):
    """All of `evaluate`, with layouts as parameters, for each chip that a kernel is offered on."""
    ends = scenario("test-1b-h100").plan.layout
    layouts = {"one": ends, "other": ends}
    axes = {
        "plan.layout": Axis.choice("plan.layout", layouts),
        "plan.clock": "0.5:1:40",
        "plan.power_cap": "400..700 W 40",
    }
    program = KernelTileProgram.of(prepare_sweep(scenario("test-1b-h100"), axes).program, target.name)
    number = jnp.int32(0)
    with program.precision():
        arguments = (*program.arguments, None, number, number)
        assert target.is_called_by(lambda _, *case: program.trace(*case), *arguments)
