"""Savings of a calendar of money or carbon in hours that its plan has not seen.

Hours of Texas, 2024: odd weeks are seen and even weeks judge, and the other way round. They may not be copied into the
project and are read from a folder: `python experiments/16_hourly_grid/run.py FOLDER`. Prints its tables and writes
`result.json` beside this file.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from foresight import Foresight, best_constant, constant_run, followed, foresight
from hourly_program import HourlyProblem, hourly_problem, schedule_cost

from energymodel.economics.cost import HOUR
from energymodel.errors import InputError
from energymodel.scenarios.grid_hours import GridHours, read_grid
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.calendar import levels_of, terms_of

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
SCENARIO = "llama-3.1-405b-h100"
TEXAS, ZONES = "grid_hourly_texas_2024.csv", "grid_month_hour_means_2024.csv"
WEEK, WEEKS = 168, 52
SAME = 1e-6  # of a power that is the same
PAID = {  # equipment and building that cost nothing, whether they are used or not
    "system.accelerator.price": "0 USD",
    "system.market.price.interest_rate": 0.0,
    "system.market.price.maintenance": 0.0,
    "system.market.price.life": "30000 years",
    "system.market.price.facility_life": "30000 years",
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "owned, money": ({}, {}),
    "owned, money, 100 USD/t": ({}, {"carbon_price": "100 USD/t"}),
    "rented, money": ({"system.market.price": "rented"}, {}),
    "already paid, money": (PAID, {}),
    "operational carbon": ({}, {"minimize": "carbon_operational"}),
    "all carbon": ({}, {"minimize": "carbon"}),
}


def half(hours: GridHours, first: int) -> GridHours:
    """Every other week, from the first or the second on, as one series."""
    index = np.concatenate([np.arange(week * WEEK, (week + 1) * WEEK) for week in range(first, WEEKS, 2)])
    assert hours.price is not None
    assert hours.carbon is not None
    month = np.arange(len(index)) // 730
    return hours._replace(price=hours.price[index], carbon=hours.carbon[index], month=month, first=0)


def forecast(seen: GridHours) -> GridHours:
    """The mean day of the week that was seen for each day of the week beside it."""

    def days(values: np.ndarray | None) -> np.ndarray:
        assert values is not None
        return np.repeat(values.reshape(-1, 7, 24).mean(axis=1), 7, axis=0).ravel()

    return seen._replace(price=days(seen.price), carbon=days(seen.carbon))


def judged(
    scenario: Scenario,
    learned: Foresight,
    oracle: Foresight,
    seen: GridHours,
    unseen: GridHours,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Savings over the constant speed that the seen hours advise, in hours that were not seen.

    `learned` is the best calendar of the seen hours, `oracle` that of the others.
    """
    terms = terms_of(scenario, **options)
    planned = foresight(scenario, forecast(seen), 0, **options)
    problem = hourly_problem(scenario, unseen, learned.levels, terms).until(learned.horizon)
    constant = constant_run(problem, int(np.argmin(np.abs(learned.levels.clock - learned.constant_clock))))
    rule = followed(problem, learned.schedule.token_price, float(np.max(learned.schedule.power)) * (1.0 + SAME))
    assert constant is not None
    assert rule is not None
    open_problem = hourly_problem(scenario, unseen, planned.levels, terms)
    open_loop = schedule_cost(open_problem.until(len(planned.schedule.occupied)), planned.schedule)
    return {
        "constant_clock": learned.constant_clock,
        "seen_saving": 1.0 - learned.value / learned.constant_value,
        "plan_saving": 1.0 - open_loop / constant.value,
        "rule_saving": 1.0 - rule.value / constant.value,
        "oracle_saving": 1.0 - oracle.value / constant.value,
        "bound_saving": 1.0 - oracle.bound / constant.value,
        "rule_days": HOUR * float(rule.occupied.sum()) / 86400.0,
        "rule_paused_hours": float(rule.paused.sum()),
        "oracle_paused_hours": float(oracle.schedule.paused.sum()),
    }


def unseen_rows(hours: GridHours) -> list[dict[str, Any]]:
    """Both directions of each case."""
    rows = []
    for name, (changes, options) in CASES.items():
        scenario = load_scenario(SCENARIO, changes)
        halves = [half(hours, first) for first in (0, 1)]
        best = [foresight(scenario, hours, 0, **options) for hours in halves]
        for seen, unseen in ((0, 1), (1, 0)):
            row = judged(scenario, best[seen], best[unseen], halves[seen], halves[unseen], options)
            rows.append({"case": name, "judged_on": ("odd weeks", "even weeks")[unseen], **row})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def pause_rows(hours: GridHours) -> list[dict[str, Any]]:
    """From which price on a pause would pay, at shares of the cost of the equipment, and in how many hours it would."""
    scenario = load_scenario(SCENARIO)
    levels = levels_of(scenario)
    running, paused = (float(np.mean(power)) for power in _powers(scenario, hours))
    assert hours.price is not None
    rows = []
    for share in (1.0, 0.5, 0.25, 0.1, 0.0):
        limit = (share * levels.money_held + float(np.mean(hours.price)) * running) / (running - paused)
        rows.append(
            {
                "share_of_equipment_cost": share,
                "pause_above_usd_per_mwh": limit * 3.6e9,
                "hours_of_the_year_above": int(np.sum(hours.price > limit)),
                "highest_usd_per_mwh": float(np.max(hours.price)) * 3.6e9,
            }
        )
    return rows


def _problem(scenario: Scenario, hours: GridHours) -> HourlyProblem:
    terms = terms_of(scenario, "carbon_operational")
    return hourly_problem(scenario, hours, levels_of(scenario), terms)


def _powers(scenario: Scenario, hours: GridHours) -> tuple[np.ndarray, np.ndarray]:
    problem = _problem(scenario, hours)
    return problem.powers[:, -1], problem.paused


def zone_rows(path: Path, zones: list[str]) -> list[dict[str, Any]]:
    """Operational carbon of the best start and calendar in the mean year of each zone: of hours that are all known."""
    scenario = load_scenario(SCENARIO)
    rows = []
    for zone in zones:
        hours = read_grid(path, zone, needs=("carbon",), weather=False)
        free = foresight(scenario, hours, None, minimize="carbon_operational")
        january = best_constant(_problem(scenario, hours.window(0, 8760)), free.horizon, np.array([0]))
        assert january is not None
        rows.append(
            {
                "zone": zone,
                "best_start_saving": 1.0 - free.constant_value / january[2].value,
                "best_start_day": free.start / 24.0,
                "calendar_saving": 1.0 - free.value / free.constant_value,
                "bound_saving": 1.0 - free.bound / free.constant_value,
                "paused_hours": float(free.schedule.paused.sum()),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def zones_of(path: Path) -> list[str]:
    """All zones of a file."""
    return sorted({line.split(",")[0] for line in path.read_text(encoding="utf-8").splitlines()[1:]})


def main() -> None:
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / TEXAS).is_file():
        raise InputError(f"Give the folder that has {TEXAS} and {ZONES}; they may not be copied into the project.")
    folder = Path(sys.argv[1])
    texas = read_grid(folder / TEXAS, needs=("price", "carbon"), weather=False)
    tables = {"pause": pause_rows(texas), "unseen": unseen_rows(texas)}
    tables["zones"] = zone_rows(folder / ZONES, zones_of(folder / ZONES))
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
