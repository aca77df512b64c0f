"""Power of chillers, and the weather of a place by a few constants.

Prints its tables and writes `result.json` beside this file. Measurements that may not be copied here are read from a
folder: `python experiments/14_cooling/run.py FOLDER`. Without it their tables stay as they are in `result.json`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import chillers
import climates
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
KNOWN = ("the kind of its condenser", "one reading of it", "three readings of it, at full, half and quarter load")
LOADS = ("full load", "full load", "all loads")
RAN = "COP of a chiller that runs, from a quarter of its days"


def compute(measurements: Path | None) -> outputs.Tables:
    """Tables of constants and errors; those of measurements that are not at hand are kept."""
    before = FOLDER / "result.json"
    tables: dict[str, list[dict[str, Any]]] = json.loads(before.read_text()) if before.is_file() else {}
    ran = [row for row in tables.get("accuracy", []) if row["prediction"] == RAN]
    tables |= {"chillers": [], "accuracy": []}
    for kind, rated_lift in chillers.RATED_LIFT.items():
        readings = chillers.catalog(kind)
        constants = chillers.fit(readings, rated_lift)
        parabola, line = (100.0 * np.mean(np.abs(errors)) for errors in chillers.part_load_errors(readings))
        tables["chillers"].append(
            {
                "condenser": kind,
                "machines": int(readings.chiller.max()) + 1,
                "rated_cop": constants.rated_cop,
                "rated_lift_k": rated_lift,
                "scale_k": constants.scale,
                "spread_of_log_cop": constants.spread,
                "part_load_percent_by_parabola": parabola,
                "part_load_percent_by_line": line,
            }
        )
        within = f"{kind}-cooled, water of 7 to 12 °C, "
        for known, loads, errors in zip(KNOWN, LOADS, chillers.held_out_errors(readings, rated_lift), strict=True):
            tables["accuracy"].append(
                outputs.accuracy(f"COP of a chiller from {known}", errors, "chiller", within + loads)
            )
        if kind == "water" and measurements:
            tables["plant"], errors = chillers.plant(measurements, constants)
            ran = [
                outputs.accuracy(
                    RAN, errors, "three quarters of the days", "two water-cooled machines, load 0.26 to 0.75"
                )
            ]
    tables["accuracy"] += ran
    if measurements:
        tables["places"] = climates.places(measurements)
        tables["hours_of_a_year"] = climates.hours_of_a_year(measurements)
    return tables


def main() -> None:
    outputs.keep(compute(Path(sys.argv[1]) if len(sys.argv) > 1 else None), FOLDER)


if __name__ == "__main__":
    main()
