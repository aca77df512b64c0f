"""Power of a card that nobody has measured at lower limits, from the traces of others."""

from collections.abc import Mapping, Sequence

import numpy as np
from power_limits import BUSY, Traces, percent

from energymodel.calibration.constant_priors import JointPrior, joint_prior
from energymodel.calibration.device_power import NOISE, OPTIONS, Profiles, power_constants, power_errors
from energymodel.calibration.least_squares import FitProblem, fit, unfitted
from energymodel.calibration.power_population import Architecture, PowerPopulation, architecture_of, likenesses


def family_prior(alone: JointPrior, cards: Sequence[Architecture | None]) -> JointPrior:
    """The prior of cards that are fitted together: that of each alone, correlated by `likenesses`.

    **Arguments:**

    - `alone`: of constants that have one value for each card, in the order of constants, then cards.
    """
    count = np.eye(len(alone.names) // len(cards))
    total = np.kron(count, likenesses(cards)) * np.outer(alone.spread, alone.spread)
    return alone._replace(whiten=np.linalg.inv(np.linalg.cholesky(total)))


def population(data: Mapping[str, Traces], errors: Mapping[str, float] | None = None) -> PowerPopulation:
    """Constants of all cards, fitted together to their limits below the highest."""
    cards = list(data)
    parts = [
        traces.runs._replace(device=np.full(len(traces.batch), index)) for index, traces in enumerate(data.values())
    ]
    runs = Profiles(
        *(np.concatenate([np.asarray(column) for column in columns]) for columns in zip(*parts, strict=True))
    )
    weights = np.concatenate([~traces.is_profile for traces in data.values()]).astype(float)
    constants = power_constants(devices=cards)
    prior = family_prior(joint_prior(constants), [architecture_of(card) for card in cards])
    fitted = fit(FitProblem(power_errors, constants, runs, weights, NOISE, OPTIONS, prior))
    return PowerPopulation(power_constants(), tuple(cards), fitted.coordinates, fitted.covariance, errors or {})


def left_out(data: Mapping[str, Traces]) -> dict[str, np.ndarray]:
    """Errors of each card's rows below the highest limit, with the constants that all other cards say it has."""
    result = {}
    for card, own in data.items():
        others = population({name: traces for name, traces in data.items() if name != card})
        problem = FitProblem(
            power_errors, power_constants(), own.runs, noise=NOISE, prior=others.of([architecture_of(card)])
        )
        result[card] = unfitted(problem).errors[~own.is_profile]
    return result


def usual_errors(by_card: Sequence[np.ndarray]) -> dict[str, float]:
    """Mean absolute logarithms of predicted over measured time, power and energy."""
    errors = np.concatenate(by_card)
    sums = {"time": errors[:, 0], "power": errors[:, 1], "energy": errors.sum(axis=1)}
    return {name: round(float(np.mean(np.abs(squares))), 4) for name, squares in sums.items()}


def table(data: Mapping[str, Traces], by_card: Mapping[str, np.ndarray]) -> dict[str, dict[str, dict[str, float]]]:
    """Errors of each card in percent, of workloads that keep it busy and of all."""
    return {
        card: {
            "busy": percent(errors[np.isin(data[card].dataset[~data[card].is_profile], BUSY)]),
            "all": percent(errors),
        }
        for card, errors in by_card.items()
    }
