"""Uncertainty of energy, time, money and carbon of the 405B run, and the numbers to measure first.

Prints the tables and writes `result.json` beside this file.
"""

import dataclasses
import math
import sys
from pathlib import Path

from rich.console import Console

import energymodel as em
from energymodel.report.answers.samples import samples_answer
from energymodel.report.terminal import terminal

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

HERE = Path(__file__).parent
SCENARIO = "llama-3.1-405b-h100"
SAMPLES = 400_000
LIMITS = {"time": "100 days"}


def main() -> None:
    scenario = em.load_scenario(SCENARIO)
    drawn = em.monte_carlo(scenario, SAMPLES, limits=LIMITS)
    Console(width=120, highlight=False).print(terminal(samples_answer(scenario, drawn)))
    result = {
        "limits": LIMITS,
        "samples": drawn.samples,
        "index_samples": drawn.index_samples,
        "outputs": {
            name: {
                "mean": spread.mean,
                "error": spread.error,
                "deviation": spread.deviation,
                "undefined": spread.undefined,
                "quantiles": {f"{share:g}": value for share, value in spread.quantiles.items()},
                "intervals": {f"{share:g}": ends for share, ends in spread.ranges.items()},
            }
            for name in drawn.of
            for spread in [drawn.spreads[name]]
        },
        "chances": {
            name: {
                **{
                    word: end if math.isfinite(end) else None for word, end in zip(("least", "most"), ends, strict=True)
                },
                "share": chance.share,
                "interval": [chance.low, chance.high],
            }
            for name, chance in drawn.chances.items()
            for ends in [drawn.limits.get(name, (-math.inf, math.inf))]
        },
        "indices": {name: [dataclasses.asdict(index) for index in rows] for name, rows in drawn.indices.items()},
    }
    outputs.write(result, HERE)


if __name__ == "__main__":
    main()
