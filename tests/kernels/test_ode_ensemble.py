import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from energymodel.physics.thermal import transient_temperature
from energymodel_kernels.ode_ensemble import LossPlan, ThermalPlan, heat_rate, loss_rate_of, ode_ensemble
from energymodel_kernels.ode_ensemble.shapes import TESTED
from gradients import compiled_once
from learning.laws import LAW

SIZE, START = 70e9, 1e11


def loss_plans(plans):
    """Throughputs and batches of runs from 1e11 tokens."""
    return LossPlan(SIZE, np.geomspace(1e8, 1e9, plans), np.geomspace(1e6, 3e7, plans), 1e7, LAW)


def integrate(rate, initial, parameters, implementation, **options):
    def run(parameters):
        return ode_ensemble(rate, initial, parameters, implementation=implementation, **options)

    return compiled_once(run, parameters)


@pytest.mark.parametrize("shape", TESTED)
def test_loss_agrees_with_the_closed_form(implementation, shape):
    # L(x_0 + R t / (1 + B/B_n)): docs/physics.md A0.10.
    plans, steps, saves = TESTED[shape]
    case, end = loss_plans(plans), 1000.0
    start = float(LAW.loss(SIZE, START))
    loss = integrate(loss_rate_of, start, case, implementation, step=end / steps, steps=steps, saves=saves)
    assert loss.shape == (saves, plans)
    times = end * (np.arange(saves) + 1.0)[:, None] / saves
    progress = START + case.token_rate * times / (1.0 + case.batch / case.critical_batch)
    np.testing.assert_allclose(loss, LAW.loss(SIZE, progress), rtol=2e-5 if steps < 20 else 2e-6)


@pytest.mark.parametrize("shape", TESTED)
def test_temperature_agrees_with_the_closed_form(implementation, shape):
    plans, steps, saves = TESTED[shape]
    case = ThermalPlan(np.linspace(100.0, 700.0, plans), 300.0, 0.05, np.linspace(100.0, 500.0, plans))
    step = 1e-2 * case.heat_capacity  # a fifth of each time constant
    result = integrate(heat_rate, 310.0, case, implementation, step=step, steps=steps, saves=saves)
    times = step * (steps // saves) * (np.arange(saves) + 1.0)[:, None]
    exact = transient_temperature(times, 310.0, case.power, 300.0, 0.05, case.heat_capacity)
    np.testing.assert_allclose(result, exact, rtol=1e-5)


def pendulum(time, state, parameters):
    angle, speed = state["angle"], state["speed"]
    return {"angle": speed, "speed": -parameters["stiffness"] * jnp.sin(angle) + parameters["drive"] * jnp.cos(time)}


def test_several_states_and_time_in_double_precision():
    stiffness = np.linspace(0.5, 2.0, 3)
    initial = {"angle": np.array([0.1, 1.0, 2.0]), "speed": 0.0}
    options = {"step": 0.01, "steps": 200, "saves": 2, "dtype": jnp.float64}
    result = {
        name: integrate(pendulum, initial, {"stiffness": stiffness, "drive": 0.3}, name, **options)
        for name in ("xla", "interpret")
    }
    for plan in range(3):

        def slope(time, y, k=stiffness[plan]):
            return [y[1], -k * np.sin(y[0]) + 0.3 * np.cos(time)]

        exact = scipy.integrate.solve_ivp(
            slope, (0.0, 2.0), [initial["angle"][plan], 0.0], t_eval=[1.0, 2.0], rtol=1e-11, atol=1e-12
        )
        for states in result.values():
            np.testing.assert_allclose(states["angle"][:, plan], exact.y[0], rtol=1e-8)
            np.testing.assert_allclose(states["speed"][:, plan], exact.y[1], rtol=1e-8)


def test_order_is_four():
    def error(steps):
        y = ode_ensemble(lambda t, y, k: -k * y, 1.0, 1.0, step=2.0 / steps, steps=steps, dtype=jnp.float64)
        return abs(float(y[0, 0]) - np.exp(-2.0))

    assert error(20) / error(40) == pytest.approx(16.0, rel=0.1)


def test_many_small_increments_do_not_drown(implementation):
    # 1 + 20,000 times 1e-8: a plain float32 sum stays at 1.
    y = integrate(lambda t, y, k: k + 0.0 * y, 1.0, 1.0, implementation, step=1e-8, steps=20_000)
    np.testing.assert_allclose(y[0, 0], 1.0002, rtol=1e-6)


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("equation", ["loss", "heat", "pendulum"])
def test_lowering(target, equation, approximate):
    rate, initial, case = {
        "loss": (loss_rate_of, 2.5, loss_plans(131)),
        "heat": (heat_rate, 310.0, ThermalPlan(np.linspace(100.0, 700.0, 131), 300.0, 0.05, 300.0)),
        "pendulum": (pendulum, {"angle": 0.1, "speed": 0.0}, {"stiffness": np.linspace(1.0, 2.0, 131), "drive": 0.1}),
    }[equation]

    def run(name, case):
        return ode_ensemble(
            rate, initial, case, step=1.0, steps=64, saves=4, approximate=approximate, implementation=name
        )

    assert target.is_called_by(run, case)


def test_bad_input_is_named():
    def rate(time, y, k):
        return -k * y

    with pytest.raises(ValueError, match="saves = 3 must divide steps = 10"):
        ode_ensemble(rate, 1.0, 1.0, step=0.1, steps=10, saves=3)
    with pytest.raises(ValueError, match=r"different lengths: .*'initial'.*: 3.*'parameters'.*: 2"):
        ode_ensemble(rate, np.ones(3), np.ones(2), step=0.1, steps=10)
    with pytest.raises(ValueError, match=r"\['initial'\] has shape \(2, 2\)"):
        ode_ensemble(rate, np.ones((2, 2)), 1.0, step=0.1, steps=10)
