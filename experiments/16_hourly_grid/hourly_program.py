"""The linear program over the hours of a run: speeds, pauses and the end of lowest cost, and a bound on every calendar.

Each hour is divided over speeds, a pause, and the time after the end. Ends and pauses are whole in the calendar that is
returned; the program without that condition bounds every calendar of the same start from below.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from energymodel.economics.cost import HOUR
from energymodel.scenarios.grid_hours import GridHours
from energymodel.scenarios.scenario import Scenario
from energymodel.search.calendar import Levels, Terms, hourly_powers
from energymodel.search.hourly_run import metered_peaks

SOME = 1e-6  # share of an hour that counts
MOST_ENDS = 2  # of the relaxed run that are tried beside its mean
CLOSE = 1e-4  # of the lower bound: near enough

Matrix: Any = sparse.csr_matrix  # its operations give other types in the stubs


class HourlyCosts(NamedTuple):
    """Prices of the objective in its unit u.

    - `use`: of energy [u/J]; `held`: of a second of the run [u/s].
    - `peak`: of a watt of a month's highest hour, over time [u/(W s)].
    """

    use: np.ndarray
    held: float = 0.0
    peak: float = 0.0


class HourlyProblem(NamedTuple):
    """Hours from the start to the deadline.

    - `rates` of the speeds [token/s], slowest first; `powers` by hour and speed and `paused` by hour [W].
    - `tokens` of the run, `stop_time` that a pause loses beyond itself [s].
    - `month`: billing month of each hour.
    """

    rates: np.ndarray
    powers: np.ndarray
    paused: np.ndarray
    tokens: float
    stop_time: float
    month: np.ndarray
    costs: HourlyCosts

    @property
    def hours(self) -> int:
        """Number of hours."""
        return len(self.paused)

    def window(self, start: int, hours: int) -> "HourlyProblem":
        """Some of the hours, from a first one on."""
        chosen = slice(start, start + hours)
        parts = {name: getattr(self, name)[chosen] for name in ("powers", "paused", "month")}
        return self._replace(costs=self.costs._replace(use=self.costs.use[chosen]), **parts)

    def until(self, hours: int) -> "HourlyProblem":
        """The first hours alone."""
        return self.window(0, hours)


class Schedule(NamedTuple):
    """A solution: the share of each hour by speed, the share before the end, and how often the run restarts.

    `power` is the mean of each hour [W]; `value` and `token_price` are in the unit of the costs.
    """

    shares: np.ndarray
    occupied: np.ndarray
    restarts: float
    power: np.ndarray
    value: float
    token_price: float

    @property
    def paused(self) -> np.ndarray:
        """Share of each hour in which the run stands."""
        return self.occupied - self.shares.sum(axis=1)


def hourly_problem(scenario: Scenario, hours: GridHours, levels: Levels, terms: Terms) -> HourlyProblem:
    """All hours with their costs in the unit of the objective."""
    (powers, paused), zeros = hourly_powers(scenario, levels, hours), np.zeros(hours.hours)
    carbon = zeros if hours.carbon is None else hours.carbon
    if terms.minimize == "money":
        market = hours.price if terms.owned and hours.price is not None else zeros
        held = levels.money_held + terms.carbon_price * levels.carbon_held
        costs = HourlyCosts(market + terms.carbon_price * carbon, held, terms.demand_charge)
    else:
        costs = HourlyCosts(carbon, levels.carbon_held if terms.minimize == "carbon" else 0.0)
    reliability = scenario.system.reliability
    return HourlyProblem(
        rates=levels.rate,
        powers=powers,
        paused=paused,
        tokens=levels.tokens,
        stop_time=float(reliability.checkpoint_time) + float(reliability.restart_time),
        month=hours.month,
        costs=costs,
    )


def schedule_cost(problem: HourlyProblem, schedule: Schedule) -> float:
    """Cost of a schedule at the prices of a problem, which need not be those that it was made for."""
    costs, occupied, power = problem.costs, schedule.occupied, schedule.power
    peaks = costs.peak * metered_peaks(problem.month, power, occupied)
    return HOUR * float(costs.use @ power + costs.held * np.sum(occupied) + peaks)


def relaxed_schedule(problem: HourlyProblem) -> Schedule | None:
    """The lowest cost where ends and pauses may be shares: a lower bound, or None where the tokens do not fit.

    The demand charge is bounded from below by that of an even load.
    """
    return _solve(problem, None, None)


def best_schedule(problem: HourlyProblem, relaxed: Schedule, *ends: int) -> Schedule | None:
    """A calendar with one end, in whose pauses the run stands for whole hours, near the relaxed one.

    It ends where that ends for the most part or in the mean, or at one of the other `ends` [h].
    """
    best: Schedule | None = None
    for hours in [*_ends(relaxed), *ends]:
        if best is not None and best.value <= relaxed.value * (1.0 + CLOSE):
            break
        ended = _ended(problem.until(hours)) if hours <= problem.hours else None
        best = min((run for run in (best, ended) if run), key=lambda run: run.value, default=None)
    return best


def _ends(relaxed: Schedule) -> list[int]:
    """Hours in which the relaxed run ends in the mean, and where the largest parts of it end."""
    drops = -np.diff(np.append(relaxed.occupied, 0.0))
    likely = np.argsort(-drops, kind="stable")[:MOST_ENDS]
    mean = int(np.ceil(relaxed.occupied.sum() - SOME))
    return list(dict.fromkeys([mean, *(int(hour) + 1 for hour in likely if drops[hour] > SOME)]))


def _ended(problem: HourlyProblem) -> Schedule | None:
    """The best calendar that ends in the last hour, with whole pauses."""
    free = _solve(problem, problem.hours, None)
    if free is None:
        return None
    running = free.shares.sum(axis=1)
    if np.all(free.paused < SOME):
        return free
    patterns = [running > 0.5 * free.occupied, running > SOME, np.ones(problem.hours, bool)]
    solved = [run for runs in patterns if (run := _solve(problem, problem.hours, runs)) is not None]
    return min(solved, key=lambda run: run.value, default=None)


class _Rows:
    """Constraints in blocks over the variables, each block one row per hour unless it is a single one."""

    def __init__(self, names: dict[str, int]) -> None:
        self.names = names
        self.blocks: list[Any] = []
        self.right: list[np.ndarray] = []

    def add(self, right: float, **parts: Any) -> int:
        """Add a block; gives the number of its first row."""
        first, rows = sum(map(len, self.right)), next(iter(parts.values())).shape[0]
        empty = {name: Matrix((rows, width)) for name, width in self.names.items()}
        self.blocks.append(sparse.hstack([parts.get(name, empty[name]) for name in self.names], format="csr"))
        self.right.append(np.full(rows, right))
        return first

    def matrix(self) -> tuple[Any, np.ndarray]:
        """All coefficients and right sides."""
        return sparse.vstack(self.blocks, format="csr"), np.concatenate(self.right)


def _solve(problem: HourlyProblem, last: int | None, runs: np.ndarray | None) -> Schedule | None:
    """The linear program: with a fixed end, and with whole pauses where `runs` says in which hours the run goes on."""
    hours, speeds = problem.powers.shape
    costs, months = problem.costs, problem.month - problem.month[0]
    top_rate, top_power = float(np.max(problem.rates)), float(np.max(problem.powers))
    count = int(months[-1]) + 1
    widths = {"speed": hours * speeds, "occupied": hours, "starts": hours, "meter": hours}
    billed = costs.peak > 0.0 and last is not None
    widths |= {"peak": count} if billed else {}
    # Powers are in units of the highest, rates of the fastest, energies of an hour at the highest power.
    eye: Any = sparse.eye(hours, format="csr")
    before: Any = sparse.eye(hours, k=-1, format="csr")
    running: Any = sparse.kron(eye, np.ones((1, speeds)), format="csr")
    at_most, equal = _Rows(widths), _Rows(widths)

    at_most.add(0.0, speed=running, occupied=-eye)
    if last is None and hours > 1:
        at_most.add(0.0, occupied=(sparse.eye(hours, k=1, format="csr") - eye)[:-1])
    if runs is None and hours > 1:
        at_most.add(0.0, speed=(running - before @ running)[1:], starts=-eye[1:])
    rates = Matrix(np.tile(problem.rates / top_rate, hours))
    lost = Matrix(np.full((1, hours), problem.stop_time / HOUR))
    tokens_row = at_most.add(-problem.tokens / (top_rate * HOUR), speed=-rates, starts=lost)
    above = (problem.powers - problem.paused[:, None]) / top_power
    drawn = sparse.block_diag([row[None, :] for row in above], format="csr")
    equal.add(0.0, meter=eye, speed=-drawn, occupied=-sparse.diags(problem.paused / top_power, format="csr"))
    if billed:
        at_most.add(0.0, meter=eye, peak=-Matrix((np.ones(hours), (np.arange(hours), months))))

    scale = top_power * HOUR
    objective: dict[str, Any] = dict.fromkeys(widths, 0.0)
    objective |= {"occupied": costs.held * HOUR, "meter": scale * costs.use}
    if billed:
        objective["peak"] = scale * costs.peak * np.bincount(months, minlength=count)
    else:
        objective["meter"] = objective["meter"] + scale * costs.peak
    vector = np.concatenate([np.broadcast_to(objective[name], (width,)) for name, width in widths.items()])
    size = float(np.mean(np.abs(vector[vector != 0.0]))) or 1.0

    low, high = ({name: np.full(width, bound) for name, width in widths.items()} for bound in (0.0, np.inf))
    high["occupied"][:] = 1.0
    if last is not None:
        low["occupied"][:-1] = 1.0
    high["starts"][:] = 1.0
    if runs is not None:
        high["speed"][:] = np.repeat(np.where(runs, np.inf, 0.0), speeds)
        restarts = np.append(0.0, np.diff(runs.astype(float)) > 0.0)
        low["starts"], high["starts"] = restarts, restarts
        if len(chosen := np.flatnonzero(runs)):  # no part of such an hour is a pause
            at_most.add(0.0, speed=-running[chosen], occupied=eye[chosen])
    bounds = np.stack([np.concatenate([side[name] for name in widths]) for side in (low, high)], axis=1)

    answer = linprog(vector / size, *at_most.matrix(), *equal.matrix(), bounds=bounds, method="highs-ipm")
    if answer.status != 0:
        return None
    ends = np.cumsum([0, *widths.values()])
    part = {name: answer.x[low:high] for name, low, high in zip(widths, ends[:-1], ends[1:], strict=True)}
    return Schedule(
        shares=part["speed"].reshape(hours, speeds),
        occupied=part["occupied"],
        restarts=float(part["starts"].sum()),
        power=part["meter"] * top_power,
        value=float(answer.fun) * size,
        token_price=float(-answer.ineqlin.marginals[tokens_row]) * size / (top_rate * HOUR),
    )
