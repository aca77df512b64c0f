"""Results of a sweep and of random samples, put together by hand."""

import numpy as np

from energymodel.sweeps.axes import Axis
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.monte_carlo import MonteCarlo
from energymodel.sweeps.reductions import AbstractReduction
from energymodel.sweeps.sample_statistics import Chance, SobolIndex, Spread
from energymodel.sweeps.sweep_result import SweepResult, Winner

CLOCK = Axis("plan.clock", np.array([0.6, 0.8, 1.0]))
LAYOUT = Axis("plan.layout", np.arange(2.0), labels=("t1·p1", "t2·p1"))


def swept(keep: AbstractReduction, energies: tuple[float, ...], message: str = "") -> SweepResult:
    """Points of three clocks with these energies; the time falls from 30 to 20 hours."""
    winners = tuple(
        Winner(
            energy,
            (index, 0),
            {"plan.clock": float(CLOCK.values[index]), "plan.layout": "t1·p1"},
            {"energy": energy, "time": 108_000.0 - 18_000.0 * index},
        )
        for index, energy in enumerate(energies)
    )
    axes = (CLOCK, LAYOUT)
    return SweepResult(
        axes=axes,
        grid=Grid(("plan.clock", "plan.layout"), (3, 2), 0, 3, 1),
        keep=keep,
        limits={},
        result=None,
        winners=winners,
        points=6,
        seconds=0.5,
        complete=not message,
        message=message,
        units={"energy": "J", "time": "s"},
        store=None,
    )


def samples() -> MonteCarlo:
    """Energies around 0.5 GJ, a limit of the time, and two uncertain numbers."""
    quantiles = {0.05: 4e8, 0.25: 4.5e8, 0.5: 5e8, 0.75: 5.5e8, 0.95: 7e8}
    return MonteCarlo(
        of=("energy",),
        samples=1024,
        spreads={"energy": Spread(5.1e8, 1e6, 8e7, quantiles, {0.5: (4.9e8, 5.1e8)}, 0.0)},
        chances={"all": Chance(0.75, 0.72, 0.78), "time": Chance(0.75, 0.72, 0.78)},
        factors=("system.accelerator.busy_power", "system.node.fan_power"),
        indices={
            "energy": (
                SobolIndex("system.accelerator.busy_power", 0.2, 0.05, 0.25, 0.05),
                SobolIndex("system.node.fan_power", 0.6, 0.05, 0.7, 0.05),
            )
        },
        index_samples=64,
        limits={"time": (0.0, 1e6)},
        units={"energy": "J", "time": "s"},
        points=4096,
        seconds=1.0,
        complete=True,
        message="",
    )
