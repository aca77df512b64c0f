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

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
KINDS = ("air", "water")


def compute(measurements: Path | None) -> outputs.Tables:
    """Tables of constants and errors; those of measurements that are not at hand are kept."""
    before = FOLDER / "result.json"
    tables: dict[str, list[dict[str, Any]]] = json.loads(before.read_text()) if before.is_file() else {}
    tables |= {"chillers": [], "accuracy": []}
    for kind in KINDS:
        readings = chillers.catalog(kind)
        constants, (fixed, quadratic) = chillers.fit(readings), chillers.part_load(readings)
        blind, with_one = chillers.held_out_errors(readings)
        tables["chillers"].append(
            {
                "condenser": kind,
                "machines": int(readings.chiller.max()) + 1,
                "quality": constants.quality,
                "exchange_k": constants.exchange,
                "spread_of_log_quality": constants.spread,
                "fixed_work": fixed,
                "quadratic_work": quadratic,
            }
        )
        within = f"{kind}-cooled, water of 7 to 12 °C, full load"
        tables["accuracy"] += [
            outputs.accuracy("COP of a chiller from the kind of its condenser", blind, "chiller", within),
            outputs.accuracy("COP of a chiller from one reading of it", with_one, "chiller", within),
        ]
        if kind == "water" and measurements:
            tables["plant"] = chillers.plant(measurements, constants, fixed, quadratic)
    if measurements:
        tables["places"] = climates.places(measurements)
        tables["hours_of_a_year"] = climates.hours_of_a_year(measurements)
    return tables


def main() -> None:
    outputs.keep(compute(Path(sys.argv[1]) if len(sys.argv) > 1 else None), FOLDER)


if __name__ == "__main__":
    main()
