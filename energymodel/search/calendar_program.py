"""At which speed should each hour of a run pass, so that all of it costs least: one linear program over the hours?

Each hour is divided over speeds, a pause, and the time after the end. Ends and pauses are whole in the calendar that is
given back; the program without that condition bounds every calendar of the same start from below.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from energymodel.economics.series import HOUR

SOME = 1e-6  # share of an hour that counts
MOST_ENDS = 2  # of the relaxed run that are tried beside its mean
CLOSE = 1e-4  # of the lower bound: near enough


Matrix: Any = sparse.csr_matrix  # its operations give other types in the stubs


class Battery(NamedTuple):
    """What a site stores: `energy` [J], `power` at the meter either way [W], energy given over energy taken [1]."""

    energy: float
    power: float
    efficiency: float


class Contract(NamedTuple):
    """Power that is paid in every hour of the run, used or not [W], at a price [USD/J]."""

    power: float
    price: float


def bought_power(
    market: np.ndarray, power: np.ndarray, contract: Contract | None, occupied: np.ndarray | float = 1.0
) -> np.ndarray:
    """Power bought at the price of the hour [W]: what exceeds the contract, and all of it where the price is negative.

    `occupied` is the share of each hour that belongs to the run.
    """
    if contract is None:
        return power
    return np.where(market < 0.0, power, np.maximum(power - contract.power * occupied, 0.0))


def metered_peaks(month: np.ndarray, power: np.ndarray, occupied: np.ndarray) -> float:
    """Sum over months of the highest power, each for the time of the run in it [W h]."""
    months = (month == one for one in np.unique(month))
    return sum((float(np.max(power[one]) * np.sum(occupied[one])) for one in months), 0.0)


class HourlyCosts(NamedTuple):
    """What a calendar minimizes, in any one unit u.

    - `market`: of energy bought hour by hour [u/J], `use` of energy taken in any way, such as its carbon [u/J].
    - `held`: of a second of the run [u/s]; `peak`: of a watt of a month's highest hour, over time [u/(W s)].
    - `contract`: of a joule of the contract [u/J].
    """

    market: np.ndarray
    use: np.ndarray
    held: float = 0.0
    peak: float = 0.0
    contract: float = 0.0


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
    battery: Battery | None = None
    contract: Contract | None = None

    @property
    def hours(self) -> int:
        """Number of hours."""
        return len(self.paused)

    def until(self, hours: int) -> "HourlyProblem":
        """The first hours alone."""
        costs = self.costs._replace(market=self.costs.market[:hours], use=self.costs.use[:hours])
        parts = {name: getattr(self, name)[:hours] for name in ("powers", "paused", "month")}
        return self._replace(costs=costs, **parts)


class Schedule(NamedTuple):
    """A solution: the share of each hour by speed, the share before the end, and how often the run restarts.

    `power` is what the meter shows in the mean of each hour, with the battery [W]; `stored` the battery's energy at
    the end of each hour [J]. `value` and `token_price` are in the unit of the costs.
    """

    shares: np.ndarray
    occupied: np.ndarray
    restarts: float
    power: np.ndarray
    stored: np.ndarray
    value: float
    token_price: float

    @property
    def paused(self) -> np.ndarray:
        """Share of each hour in which the run stands."""
        return self.occupied - self.shares.sum(axis=1)


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
        found = _ended(problem.until(hours)) if hours <= problem.hours else None
        best = min((one for one in (best, found) if one), key=lambda one: one.value, default=None)
    return best


def _ends(relaxed: Schedule) -> list[int]:
    """Hours in which the relaxed run ends in the mean, and where the largest parts of it end."""
    drops = -np.diff(np.append(relaxed.occupied, 0.0))
    likely = np.argsort(-drops, kind="stable")[:MOST_ENDS]
    mean = int(np.ceil(relaxed.occupied.sum() - SOME))
    return list(dict.fromkeys([mean, *(int(one) + 1 for one in likely if drops[one] > SOME)]))


def _ended(problem: HourlyProblem) -> Schedule | None:
    """The best calendar that ends in the last hour, with whole pauses."""
    free = _solve(problem, problem.hours, None)
    if free is None:
        return None
    running = free.shares.sum(axis=1)
    if np.all(free.paused < SOME):
        return free
    patterns = [running > 0.5 * free.occupied, running > SOME, np.ones(problem.hours, bool)]
    found = [one for runs in patterns if (one := _solve(problem, problem.hours, runs)) is not None]
    return min(found, key=lambda one: one.value, default=None)


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
    """The linear program: with a given end, and with whole pauses where `runs` says in which hours the run goes on."""
    hours, speeds = problem.powers.shape
    costs, battery, contract = problem.costs, problem.battery, problem.contract
    top_rate, top_power = float(np.max(problem.rates)), float(np.max(problem.powers))
    count = int(problem.month[-1] - problem.month[0]) + 1
    widths = {"speed": hours * speeds, "occupied": hours, "starts": hours, "meter": hours}
    widths |= {"bought": hours} if contract else {}
    widths |= {"charge": hours, "discharge": hours, "stored": hours} if battery else {}
    billed = costs.peak > 0.0 and last is not None
    widths |= {"peak": count} if billed else {}
    # Powers are in units of the highest, rates of the fastest, energies of an hour at the highest power.
    whole: Any = sparse.eye(hours, format="csr")
    before: Any = sparse.eye(hours, k=-1, format="csr")
    running: Any = sparse.kron(whole, np.ones((1, speeds)), format="csr")
    at_most, equal = _Rows(widths), _Rows(widths)

    at_most.add(0.0, speed=running, occupied=-whole)
    if last is None and hours > 1:
        step = (sparse.eye(hours, k=1, format="csr") - whole)[:-1]
        at_most.add(0.0, occupied=step)
    if runs is None and hours > 1:
        at_most.add(0.0, speed=(running - before @ running)[1:], starts=-whole[1:])
    rates = Matrix(np.tile(problem.rates / top_rate, hours))
    lost = Matrix(np.full((1, hours), problem.stop_time / HOUR))
    tokens_row = at_most.add(-problem.tokens / (top_rate * HOUR), speed=-rates, starts=lost)

    above = (problem.powers - problem.paused[:, None]) / top_power
    drawn = sparse.block_diag([row[None, :] for row in above], format="csr")
    storage = {"charge": -whole, "discharge": whole} if battery else {}
    equal.add(
        0.0, meter=whole, speed=-drawn, occupied=-sparse.diags(problem.paused / top_power, format="csr"), **storage
    )
    if contract:
        block = contract.power / top_power
        at_most.add(0.0, meter=whole, bought=-whole, occupied=-block * whole)
        at_most.add(0.0, bought=whole, meter=-whole)
    if battery:
        # Within an hour the battery charges for a while and discharges for another.
        at_most.add(0.0, charge=whole, discharge=whole, occupied=-battery.power / top_power * whole)
        equal.add(0.0, stored=whole - before, charge=-battery.efficiency * whole, discharge=whole)
    if billed:
        of_month = Matrix((np.ones(hours), (np.arange(hours), problem.month - problem.month[0])))
        at_most.add(0.0, meter=whole, peak=-of_month)

    scale = top_power * HOUR
    objective: dict[str, Any] = dict.fromkeys(widths, 0.0) | {
        "occupied": costs.held * HOUR + (costs.contract * contract.power * HOUR if contract else 0.0),
        "meter": scale * (costs.use if contract else costs.use + costs.market),
    }
    if contract:
        objective["bought"] = scale * costs.market
    if billed:
        objective["peak"] = scale * costs.peak * np.bincount(problem.month - problem.month[0], minlength=count)
    else:
        objective["meter"] = objective["meter"] + scale * costs.peak
    vector = np.concatenate([np.broadcast_to(objective[name], (width,)) for name, width in widths.items()])
    size = float(np.mean(np.abs(vector[vector != 0.0]))) or 1.0

    low, high = ({name: np.full(width, bound) for name, width in widths.items()} for bound in (0.0, np.inf))
    high["occupied"][:] = 1.0
    if last is not None:
        low["occupied"][:-1] = 1.0
    if battery:
        high["stored"][:] = battery.energy / scale
    high["starts"][:] = 1.0
    if runs is not None:
        high["speed"][:] = np.repeat(np.where(runs, np.inf, 0.0), speeds)
        restarts = np.append(0.0, np.diff(runs.astype(float)) > 0.0)
        low["starts"], high["starts"] = restarts, restarts
    bounds = np.stack([np.concatenate([side[name] for name in widths]) for side in (low, high)], axis=1)
    if runs is not None:
        _stay_running(at_most, running, whole, runs)

    answer = linprog(vector / size, *at_most.matrix(), *equal.matrix(), bounds=bounds, method="highs-ipm")
    if answer.status != 0:
        return None
    ends = np.cumsum([0, *widths.values()])
    part = {name: answer.x[low:high] for name, low, high in zip(widths, ends[:-1], ends[1:], strict=True)}
    stored = part["stored"] * scale if battery else np.zeros(hours)
    return Schedule(
        shares=part["speed"].reshape(hours, speeds),
        occupied=part["occupied"],
        restarts=float(part["starts"].sum()),
        power=part["meter"] * top_power,
        stored=stored,
        value=float(answer.fun) * size,
        token_price=float(-answer.ineqlin.marginals[tokens_row]) * size / (top_rate * HOUR),
    )


def _stay_running(rows: _Rows, running: Any, whole: Any, runs: np.ndarray) -> None:
    """No part of an hour in which the run goes on is a pause."""
    chosen = np.flatnonzero(runs)
    if len(chosen):
        rows.add(0.0, speed=-running[chosen], occupied=whole[chosen])
