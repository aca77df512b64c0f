"""How does a run go that knows an hour only when it comes, and the price of a token from hours seen before?"""

import numpy as np

from energymodel.economics.series import HOUR
from energymodel.search.calendar_bound import hour_costs, schedule_cost
from energymodel.search.calendar_program import HourlyProblem, Schedule


def followed(problem: HourlyProblem, token_price: float, most_power: float = np.inf) -> Schedule | None:
    """Each hour at the speed, or paused, that costs least where a token is worth a price.

    Prices of an hour are known when it begins, as those of a day-ahead market are. Where the deadline needs it, the
    run goes at its highest speed; it never pauses for what a restart would lose. None where the tokens do not fit.

    **Arguments:**

    - `token_price`: such as `Calendar.token_price` of other hours.
    - `most_power`: that a run takes unless it would be late [W], such as the highest hour of that calendar, for which
      a demand charge is paid.
    """
    running, paused = hour_costs(problem, problem.powers), hour_costs(problem, problem.paused[:, None])[:, 0]
    made, top = HOUR * problem.rates, HOUR * float(problem.rates[-1])
    lost = problem.stop_time * float(problem.rates[-1])
    hours, speeds = problem.powers.shape
    shares, occupied, power = np.zeros((hours, speeds)), np.zeros(hours), np.zeros(hours)
    left, stopped, restarts = problem.tokens, False, 0
    for hour in range(hours):
        restart = lost if stopped else 0.0
        late = left + lost > (hours - hour - 1) * top
        value = np.where(problem.powers[hour] <= most_power, running[hour] - token_price * made, np.inf)
        speed = speeds - 1 if late else int(np.argmin(value))
        occupied[hour] = 1.0
        if not late and value[speed] + token_price * (restart if stopped else lost) > paused[hour]:
            power[hour], stopped = problem.paused[hour], True
            continue
        left += restart
        restarts += stopped
        stopped = False
        part = min(1.0, left / made[speed])
        shares[hour, speed] = occupied[hour] = part
        power[hour] = part * problem.powers[hour, speed]
        left -= part * made[speed]
        if left <= 1e-9 * problem.tokens:
            ended = hour + 1
            found = Schedule(
                shares[:ended], occupied[:ended], float(restarts), power[:ended], np.zeros(ended), 0.0, token_price
            )
            return found._replace(value=schedule_cost(problem.until(ended), found))
    return None
