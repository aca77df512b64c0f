"""The cheapest run over hours whose costs are known, by enumeration of speeds, starts and prices of a token.

At a price of a token each hour passes at the speed whose cost less the worth of its tokens is lowest.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

ROUNDING = 1e-9  # relative difference of numbers that are the same
CAPS = 7  # highest speeds that are tried where a demand charge makes the highest hour dear
TOKEN_PRICES = np.geomspace(0.1, 10.0, 91)  # over the cost of a token at the highest speed
ZOOMS, ZOOM = 6, 33  # rounds between the neighbors of the best price, and prices in each
STARTS = 24  # of a rule, those of the lowest cost before the demand charge is known
TIE = 1e-4  # by which later hours count as dearer, so that like hours change their speed one by one


class HourlyRun(NamedTuple):
    """A run from an hour of a grid on, at a speed for each of its hours, and its totals.

    - `speeds`, `occupied`, `power`: by hour the index of the speed, the share before the end, and the mean power [W].
    - `value`: its cost in the unit of the objective; `peak`: its highest hour [W]; `clock`: the mean [1].
    - `held`, `bought`, `contract`, `demand`: parts of the money: equipment over time, energy at hourly prices, the
      contract, and the demand charge. `price` and `intensity`: what a joule costs and emits in the mean. What is not
      known by the hour is None.
    """

    start: int
    speeds: np.ndarray
    occupied: np.ndarray
    power: np.ndarray
    value: float
    time: float = 0.0
    tokens: float = 0.0
    energy: float = 0.0
    peak: float = 0.0
    clock: float = 0.0
    money: float | None = None
    held: float = 0.0
    bought: float | None = None
    contract: float = 0.0
    demand: float = 0.0
    carbon_operational: float | None = None
    carbon_embodied: float = 0.0
    price: float | None = None
    intensity: float | None = None


class HourlyProblem(NamedTuple):
    """All hours at all speeds: `tokens` of an hour by speed, `powers` [W] and `costs`, the demand charge apart.

    `peak` is what a watt of a month's highest hour costs for an hour of the run; `goal` the tokens of the run.
    """

    tokens: np.ndarray
    goal: float
    powers: np.ndarray
    costs: np.ndarray
    peak: float
    month: np.ndarray

    def best_constant(self, starts: np.ndarray, horizon: int) -> HourlyRun | None:
        """The cheapest run at one speed, from its best start."""
        rules = (np.full(len(self.month), speed) for speed in range(len(self.tokens)))
        return cheapest(self._best_start(rule, starts, horizon) for rule in rules)

    def best_hourly(self, starts: np.ndarray, horizon: int) -> HourlyRun | None:
        """The cheapest run whose hours each have the best speed at one price of a token, below one highest speed."""
        fastest = len(self.tokens) - 1
        caps = np.linspace(0, fastest, CAPS).round().astype(int) if self.peak > 0.0 else [fastest]
        usual = max(float(np.mean(self.costs[:, -1])) / self.tokens[-1], np.finfo(float).tiny)
        scores = self.costs * (1.0 + TIE * np.linspace(0.0, 1.0, len(self.month)))[:, None]
        best, prices = None, TOKEN_PRICES * usual
        for _ in range(1 + ZOOMS):
            trials = []
            for index, price in enumerate(prices):
                net = scores - price * self.tokens
                for cap in caps:
                    run = self._best_start(np.argmin(net[:, : cap + 1], axis=1), starts, horizon)
                    trials += [(run, index, cap)] if run is not None else []
            if not trials:
                return best
            run, index, cap = min(trials, key=lambda trial: trial[0].value)
            best = cheapest((best, run))
            caps, starts = [cap], np.array([run.start])
            prices = np.geomspace(prices[max(index - 1, 0)], prices[min(index + 1, len(prices) - 1)], ZOOM)
        return best

    def _best_start(self, rule: np.ndarray, starts: np.ndarray, horizon: int) -> HourlyRun | None:
        """The cheapest run by a rule, which gives the speed of every hour; None where it does not end in time."""
        every = np.arange(len(rule))
        made = np.concatenate([[0.0], np.cumsum(self.tokens[rule])])
        costs = self.costs[every, rule] + self.peak * self.powers[every, rule]
        spent = np.concatenate([[0.0], np.cumsum(costs)])
        wanted = made[starts] + self.goal
        last = np.searchsorted(made, wanted * (1.0 - ROUNDING), side="left") - 1  # the hour in which the run ends
        within = np.minimum(last, len(rule) - 1)
        share = (wanted - made[within]) / self.tokens[rule[within]]
        total = spent[within] - spent[starts] + share * costs[within]
        in_time = np.flatnonzero((last < len(rule)) & (last - starts + share <= horizon))
        order = in_time[np.argsort(total[in_time], kind="stable")[: STARTS if self.peak > 0.0 else 1]]
        return cheapest(self._run(rule, int(starts[i]), int(last[i]), float(share[i])) for i in order)

    def _run(self, rule: np.ndarray, start: int, last: int, share: float) -> HourlyRun:
        index = np.arange(start, last + 1)
        speeds, occupied = rule[index], np.ones(len(index))
        occupied[-1] = min(share, 1.0)
        power = self.powers[index, speeds] * occupied
        peaks = self.peak * metered_peaks(self.month[index], power, occupied)
        return HourlyRun(start, speeds, occupied, power, float(self.costs[index, speeds] @ occupied) + peaks)


def cheapest(runs: Iterable[HourlyRun | None]) -> HourlyRun | None:
    """The run of the lowest cost, where there is one."""
    return min((run for run in runs if run is not None), key=lambda run: run.value, default=None)


def metered_peaks(month: np.ndarray, power: np.ndarray, occupied: np.ndarray) -> float:
    """Sum over months of the highest power, each for the time of the run in it [W h]."""
    firsts = np.flatnonzero(np.diff(month, prepend=month[0] - 1))
    return float(np.maximum.reduceat(power, firsts) @ np.add.reduceat(occupied, firsts))
