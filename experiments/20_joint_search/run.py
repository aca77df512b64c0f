"""One search over all choices against each of them alone, and against Ipopt.

Prints its tables, and writes `result.json` beside this file.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ipopt import ipopt

import energymodel as em
from energymodel.search.layout_search import search_layouts
from energymodel.search.layouts import fitting_layouts, take
from energymodel.search.problem import DesignProblem, formulate
from energymodel.search.relaxation import OPTIONS, LayoutSearch, layout_bounds
from energymodel.sweeps.first_order import saving_at_risk
from energymodel.system.evaluate import evaluate_once

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

HERE = Path(__file__).parent
SCENARIO = "llama-3.1-405b-h100"
LAYOUTS = tuple(f"plan.layout.{field.name}" for field in dataclasses.fields(em.ParallelLayout))
USUAL = ("plan.batch", "plan.clock", "plan.coolant_temperature", "plan.chips")
ASKED = 5  # best layouts that Ipopt is asked about


class Search(NamedTuple):
    """What a search may choose: paths that vary further, and usual ones; all layouts, or the own one."""

    name: str
    vary: tuple[str, ...]
    usual: tuple[str, ...]
    layouts: bool


SEARCHES = (
    Search("layout", ("plan.clock=0.9999:1",), ("plan.clock",), True),
    Search("batch", (), ("plan.batch",), False),
    Search("batch over progress", ("plan.batch@0..1",), ("plan.batch",), False),
    Search("clock", (), ("plan.clock",), False),
    Search("clock between steps", ("plan.waiting_clock=0.3:1",), (), False),
    Search("power by stage", ("plan.power.*", "plan.clock=0.9999:1"), ("plan.clock",), False),
    Search("coolant", (), ("plan.coolant_temperature",), False),
    Search("chips", (), ("plan.chips",), False),
    Search("layout, batch, clock, coolant, chips", (), USUAL, True),
    Search("all", ("plan.waiting_clock=0.3:1", "plan.batch@0..1", "plan.power.*"), USUAL, True),
)


def optimum_of(search: Search) -> em.Optimum:
    """The plan of least energy that a search finds, within the time, the loss and the power of the own one."""
    fixed = [path for path in USUAL if path not in search.usual]
    fixed += [] if search.layouts else list(LAYOUTS)
    return em.optimize(em.load_scenario(SCENARIO), "energy", vary=search.vary, fix=fixed, tolerance=0.0)


def gain_row(name: str, plan: em.Optimum) -> dict[str, Any]:
    """What a search saves of the own plan's energy, with its 90 % interval."""
    low, high = saving_at_risk(plan).saving_interval
    own = plan.baseline_value
    return {
        "search": name,
        "energy_GWh": plan.value / 3.6e12,
        "gain": plan.baseline_value / own - plan.value / own,
        "gain_low": low / own,
        "gain_high": high / own,
        "result": plan.result.name,
    }


def further_rows(joint: em.Optimum, plain: em.Optimum) -> list[dict[str, Any]]:
    """What the clock between steps, the schedule and the stages add to the usual search, with its interval."""
    scenario = dataclasses.replace(joint.scenario, plan=plain.plan)
    beside = dataclasses.replace(joint, scenario=scenario, baseline=plain.outcome, baseline_value=plain.value)
    risk = saving_at_risk(beside)
    low, high = risk.saving_interval
    rows = [
        {
            "added": "clock between steps, batch over progress, power by stage",
            "gain": 1.0 - joint.value / plain.value,
            "gain_low": low / plain.value,
            "gain_high": high / plain.value,
        }
    ]
    for part in joint.refinements:
        rows.append({"added": f"of it {part.added.names}", "gain": part.saving / plain.value})
    return rows


def searched_problem() -> tuple[DesignProblem, LayoutSearch]:
    """The layouts of the joint search, with its continuous choices."""
    scenario = em.load_scenario(SCENARIO).with_question("energy", vary=["plan.waiting_clock=0.3:1"])
    problem = formulate(scenario, jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan)))
    return problem, search_layouts(problem, fitting_layouts(problem)[0])


def ipopt_rows(problem: DesignProblem, searched: LayoutSearch) -> list[dict[str, Any]]:
    """The best layouts of the search, each solved by Ipopt from the middle of the ranges."""
    order = np.argsort(np.where(searched.usable, searched.solution.value, np.inf))[:ASKED]
    rows = []
    for lane in order:
        layout = take(searched.lattice, np.array([lane]))
        low, high = layout_bounds(problem, layout)
        first_layout = jax.tree.map(lambda leaf: leaf[0], layout)
        asked = ipopt(
            problem.formulation.values,
            0.5 * (low + high)[0],
            args=(first_layout, problem.criteria, problem.run),
            bounds=(low[0], high[0]),
            options=OPTIONS,
        )
        degrees = ("tensor", "pipeline", "virtual_stages", "context", "microbatch")
        rows.append(
            {
                **{name: round(float(getattr(first_layout, name))) for name in degrees},
                "energy_GWh": float(np.exp(searched.solution.value[lane])) / 3.6e12,
                "ipopt_GWh": float(np.exp(float(asked.value))) / 3.6e12,
                "difference": float(asked.value) - float(searched.solution.value[lane]),
            }
        )
    return rows


def main() -> None:
    """Search, compare, and keep the tables."""
    plans = {search.name: optimum_of(search) for search in SEARCHES}
    gains = [gain_row(name, plan) for name, plan in plans.items()]
    plain, joint = (plans[search.name] for search in SEARCHES[-2:])
    with jax.enable_x64(True):
        asked = ipopt_rows(*searched_problem())
    tables = {"gains": gains, "beyond the usual search": further_rows(joint, plain), "ipopt": asked}
    outputs.keep(tables, HERE)


if __name__ == "__main__":
    main()
