"""How sure are energy, time, money and carbon of the 405B run, and which numbers should be measured first?

Prints the tables and writes `result.json` beside this file.
"""

import sys
from pathlib import Path

from rich.console import Console

import energymodel as em
from energymodel.report.uncertainty_report import samples_json, samples_report

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

HERE = Path(__file__).parent
SCENARIO = "llama-3.1-405b-h100"
SAMPLES = 400_000
LIMITS = {"time": "100 days"}


def main() -> None:
    scenario = em.load_scenario(SCENARIO)
    found = em.monte_carlo(scenario, SAMPLES, limits=LIMITS)
    Console(width=120, highlight=False).print(samples_report(scenario, found))
    tree = samples_json(scenario, found, {"limits": LIMITS})
    kept = {key: tree[key] for key in ("limits", "samples", "index_samples", "outputs", "chances", "indices")}
    kept["outputs"] = {name: kept["outputs"][name] for name in found.of}
    outputs.write(kept, HERE)


if __name__ == "__main__":
    main()
