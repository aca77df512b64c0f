"""Uncertainty of a saving by its slopes, and the part of it that rests on priors."""

import dataclasses
import math

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.scenarios.files import ROOT
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import saving_at_risk
from energymodel.system.evaluate import evaluate_once
from energymodel.system.plan import TargetLoss
from report.reference_optimum import optimum

STEP = 1e-4


def with_uncertainty(uncertainty, **origins):
    found = optimum()
    provenance = dict(found.scenario.provenance)
    for path, kind in origins.items():
        provenance[path] = provenance[path]._replace(kind=kind)
    scenario = dataclasses.replace(found.scenario, uncertainty=uncertainty, provenance=provenance)
    return dataclasses.replace(found, scenario=scenario)


def slope(path):
    """Of the saving by a number: own plan at its tokens, found plan at the loss that the own one reaches then."""
    found = optimum()
    run = TrainingRun(found.scenario.system, found.scenario.plan)
    value = run.values[path]

    def saving(factor):
        system = run.at(run.changed(path, value * factor)).system
        own = evaluate_once(system, found.scenario.plan)
        loss = np.asarray(float(found.outcome.loss) + float(own.loss) - float(found.baseline.loss))
        plan = eqx.tree_at(lambda plan: plan.goal, found.plan, TargetLoss(loss))
        return float(own.energy.total) - float(evaluate_once(system, plan).energy.total)

    with jax.enable_x64(True):
        return (saving(1 + STEP) - saving(1 - STEP)) / (2 * STEP * value), value


@pytest.mark.parametrize("path", ["system.accelerator.busy_power", "system.learning.critical_batch.exponent"])
def test_deviation_is_slope_times_spread(path):
    derivative, value = slope(path)
    risk = saving_at_risk(with_uncertainty({path: "lognormal 0.1"}, **{path: "prior"}))
    # Half of what lies between the quantiles at one standard deviation: sinh(0.1) of the value.
    expected = abs(derivative) * value * math.sinh(0.1)
    assert risk.saving_deviation == pytest.approx(expected, rel=1e-3)
    assert risk.prior_deviation == pytest.approx(risk.saving_deviation)
    assert risk.shares == {path: pytest.approx(1.0)}


def test_variances_add_and_measured_numbers_are_no_priors():
    both = ("system.accelerator.busy_power", "system.accelerator.leakage.power")
    alone = [saving_at_risk(with_uncertainty({path: "lognormal 0.1"})).saving_deviation for path in both]
    kinds = {both[0]: "measured", both[1]: "prior"}
    risk = saving_at_risk(with_uncertainty(dict.fromkeys(both, "lognormal 0.1"), **kinds))
    assert risk.saving_deviation == pytest.approx(math.hypot(*alone))
    assert risk.prior_deviation == pytest.approx(alone[1])
    assert list(risk.shares) == [both[1]]
    assert risk.prior_variance == pytest.approx(alone[1] ** 2 / (alone[0] ** 2 + alone[1] ** 2))


def test_the_clock_saves_what_the_voltage_allows():
    """Both ends are two evaluations each: the plan found, and the same at the own clock."""
    path, found = "system.accelerator.voltage.floor", optimum()
    known = with_uncertainty({path: "normal 0.05"}, **{path: "prior"})
    risk = saving_at_risk(dataclasses.replace(known, saving={"clock": 1.0}))
    assert risk.clock is not None
    run = TrainingRun(found.system, found.plan)
    own = eqx.tree_at(lambda plan: plan.clock, found.plan, found.scenario.plan.clock)

    def saved(floor):
        system = run.at(run.changed(path, floor)).system
        energies = [float(evaluate_once(system, plan).energy.total) for plan in (found.plan, own)]
        return 1.0 - energies[0] / energies[1]

    floor = run.values[path]
    with jax.enable_x64(True):
        ends = [saved(floor + sign * 1.644854 * 0.05) for sign in (1.0, 0.0, -1.0)]
    np.testing.assert_allclose([risk.clock[1], risk.clock[0], risk.clock[2]], ends, rtol=1e-5)
    assert ends[0] < ends[1] < ends[2]


def test_nothing_uncertain_is_no_risk():
    risk = saving_at_risk(with_uncertainty({}))
    assert risk.saving_deviation == risk.deviation == risk.resting_on_priors == risk.prior_variance == 0.0
    assert risk.interval(5.0) == (5.0, 5.0)
    assert risk.clock is None


def test_numbers_of_a_joint_distribution_move_together():
    """The variance of a joint distribution is that of its draws, along the slopes."""
    law = "system.learning.loss_law"
    uncertain = {path: text for path, text in optimum().scenario.uncertainty.items() if text == "joint chinchilla"}
    assert uncertain
    assert all(path.startswith(law) for path in uncertain)
    risk = saving_at_risk(with_uncertainty(uncertain))
    header, *rows = (ROOT / "joint" / "chinchilla.csv").read_text().splitlines()
    draws = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    along = np.zeros(len(draws))
    for column, deviations in zip(header.split(","), draws.T, strict=True):
        path = f"{law}.{column.removeprefix('log ')}"
        if path in uncertain:
            derivative, value = slope(path)
            along += derivative * deviations * (value if column.startswith("log ") else 1.0)
    assert risk.saving_deviation == pytest.approx(float(np.std(along, ddof=1)), rel=5e-3)
