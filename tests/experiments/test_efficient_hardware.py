"""The experiment on hardware near Landauer's bound: stated numbers and laws."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.physics.limits import landauer_energy
from energymodel.runtime.compilation import compiler_options
from energymodel.search.layouts import take
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.plan import ParallelLayout
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("09_efficient_hardware")
STATED = EXPERIMENT.stored


@pytest.fixture(scope="module")
def asked():
    with jax.enable_x64(True):  # a fixture of the module runs before the one that sets the precision
        return EXPERIMENT.plan_search.question()


def layouts(rows):
    names = (field.name for field in dataclasses.fields(ParallelLayout))
    return ParallelLayout(**{name: np.array([row["layout"].get(name, 0.0) for row in rows]) for name in names})


def test_todays_technology_and_choices_give_today(asked):
    hardware = EXPERIMENT.hardware
    unit = np.asarray(1.0)
    system = asked.scenario.system
    same = hardware.build(system, hardware.Technology(unit, unit, unit), hardware.todays_choice(system))
    outcome = evaluate_once(jax.tree.map(np.asarray, same), asked.scenario.plan)
    for name in ("time", "memory_per_chip", "mfu", "tokens"):
        np.testing.assert_allclose(getattr(outcome, name), getattr(asked.today, name), rtol=1e-9)
    # Links, no longer static and host, take the power of lanes: only the sum stays, but for idle moments.
    for name in ("dynamic", "memory"):
        np.testing.assert_allclose(getattr(outcome.energy, name), getattr(asked.today.energy, name), rtol=1e-3)
    np.testing.assert_allclose(outcome.energy.total, asked.today.energy.total, rtol=1e-3)


def test_transistors_and_operations_have_their_limits(asked):
    hardware = EXPERIMENT.hardware
    slope = hardware.SLOPE_FACTOR * 1.380649e-23 * hardware.TEMPERATURE / 1.602176634e-19  # n k T / e
    deep, high = -0.4, 5.0  # V: far below and far above the threshold
    ratio = hardware.current(deep + slope) / hardware.current(deep)
    np.testing.assert_allclose(ratio, np.e, rtol=1e-4)
    np.testing.assert_allclose(hardware.current(high), ((high - hardware.THRESHOLD) / (2.0 * slope)) ** 2, rtol=1e-9)
    hardware, system = EXPERIMENT.hardware, asked.scenario.system
    chip, bound = system.accelerator, 32.0 * landauer_energy(1.0, hardware.TEMPERATURE)
    today = hardware.todays_choice(system)
    made = hardware.Technology(1e6, 1.0, 0.0)
    np.testing.assert_allclose(hardware.operation_energy(chip, made, today), chip.energy_per_flop / 1e6, rtol=1e-12)
    slow = eqx.tree_at(lambda choice: choice.voltage, today, 1e-9)
    np.testing.assert_allclose(hardware.operation_energy(chip, made, slow), bound, rtol=1e-9)


def test_stated_parts_add_up_and_nothing_gets_worse():
    for row in STATED["steps"]:
        np.testing.assert_allclose(sum(row["energy_parts"].values()), 1.0, rtol=1e-12)
        assert min(row["energy_parts"].values()) > 0.0
        np.testing.assert_allclose(sum(row["time_shares"].values()), 1.0, rtol=1e-12)
        assert row["energy_j"] > STATED["bound_j"]
        assert row["gain_nearby"] < 2e-3
    for aim, world in {(row["aim"], row["world"]) for row in STATED["steps"]}:
        rows = [row for row in STATED["steps"] if (row["aim"], row["world"]) == (aim, world)]
        values = [row["energy_j"] * (row["time_s"] if aim == "etp" else 1.0) for row in rows]
        assert np.all(np.diff(values) < 0.0)
        assert rows[0]["energy_j"] * rows[0]["time_s"] < STATED["today"]["energy_j"] * STATED["today"]["time_s"]


def test_stated_points_give_the_stated_outcomes(asked):
    search = EXPERIMENT.plan_search
    lattice = layouts(STATED["steps"])

    @eqx.filter_jit(compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]
    def outcome_of(design, x, layout, target, made, run):
        return evaluate(*design.system_and_plan(x, layout, target, made, run))

    for index, row in enumerate(STATED["steps"]):
        step = search.Step(row["aim"], row["world"], row["multiple"])
        x = np.log([row["point"][name] for name in asked.names])
        layout, target = take(lattice, np.asarray(index)), asked.target(step)
        outcome = outcome_of(asked.design, x, layout, target, step.technology, asked.problem.run)
        np.testing.assert_allclose(outcome.energy.total, row["energy_j"], rtol=1e-7)
        np.testing.assert_allclose(outcome.time, row["time_s"], rtol=1e-7)
        assert float(outcome.power_peak) < 25e6 * (1.0 + 1e-4)
        assert float(outcome.memory_per_chip) < 80e9 * (1.0 + 1e-4)
