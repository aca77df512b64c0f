"""Pages of a sweep and of random samples, from results that were put together by hand."""

import numpy as np

import energymodel as em
from energymodel.report.page.document import page_html
from energymodel.report.page.samples_page import samples_page
from energymodel.report.page.sweep_page import best_of, sweep_chart, sweep_page
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.best_points import BestAlong, Top
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.monte_carlo import MonteCarlo
from energymodel.sweeps.pareto import Pareto
from energymodel.sweeps.program_choice import Choice
from energymodel.sweeps.reductions import AbstractReduction
from energymodel.sweeps.sample_statistics import Chance, SobolIndex, Spread
from energymodel.sweeps.sweep_result import SweepResult, Winner
from report.page.read_page import assert_sound

SMALL = "test-1b-h100"
CLOCK = Axis("plan.clock", np.array([0.6, 0.8, 1.0]))
LAYOUT = Axis("plan.layout", np.arange(2.0), labels=("t1·p1", "t2·p1"))


def swept(keep: AbstractReduction, energies: tuple[float, ...]) -> SweepResult:
    """Points of three clocks: time falls from 30 to 20 hours, the energy is given."""
    winners = tuple(
        Winner(
            energy,
            (place, 0),
            {"plan.clock": float(CLOCK.values[place]), "plan.layout": "t1·p1"},
            {"energy": energy, "time": 108_000.0 - 18_000.0 * place},
        )
        for place, energy in enumerate(energies)
    )
    axes = (CLOCK, LAYOUT)
    return SweepResult(
        axes=axes,
        grid=Grid(axes, 0, 3, 1),
        keep=keep,
        limits={},
        result=None,
        winners=winners,
        polished=None,
        points=6,
        seconds=0.5,
        complete=True,
        message="",
        units={"energy": "J", "time": "s"},
        store=None,
        choice=Choice("XLA", "no kernel was offered"),
    )


def test_the_best_points_are_beside_each_other():
    found = swept(Top("energy", 3), (4e8, 4.4e8, 5e8))
    page = assert_sound(page_html(sweep_page(em.load_scenario(SMALL), found, "energy", None, "energymodel sweep")))
    assert page.headings == ["Summary", "Points that were kept", "Axes", "The sweep", "Repeat it"]
    assert page.numbers("clock 0.6, layout t1·p1") == {4e8}
    assert "Of 6 points, the best has clock 0.6, layout t1·p1." in page.text
    # 4.4e8 over 4e8
    assert "The second-best point takes 10 % more energy" in page.text


def test_points_along_an_axis_are_a_line_with_the_lowest_of_them():
    found = swept(BestAlong("energy", ("plan.layout",)), (4.4e8, 4e8, 5e8))
    assert best_of(found).point["plan.clock"] == 0.8
    chart = sweep_chart(found, "energy")
    assert chart.title == "The lowest energy is at clock 0.8"
    assert [row[1:] for row in chart.table().rows] == [[0.6, 4.4e8], [0.8, 4e8], [1.0, 5e8]]


def test_a_front_of_a_grid_is_in_its_plane():
    chart = sweep_chart(swept(Pareto(("energy", "time")), (4e8, 4.4e8, 5e8)), "energy")
    assert chart.rows()[0] == ["series", "time [s]", "energy [J]"]
    assert chart.rows()[1][1:] == [108_000.0, 4e8]


def test_a_sweep_without_points_says_why():
    found = swept(Top("energy"), ())
    page = page_html(sweep_page(em.load_scenario(SMALL), found, "energy", None, "energymodel sweep"))
    assert "No points are kept by this question" in page


def samples() -> MonteCarlo:
    quantiles = {0.05: 4e8, 0.25: 4.5e8, 0.5: 5e8, 0.75: 5.5e8, 0.95: 7e8}
    return MonteCarlo(
        of=("energy",),
        samples=1024,
        spreads={"energy": Spread(5.1e8, 1e6, 8e7, quantiles, {}, 0.0)},
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


def test_samples_show_distributions_chances_and_causes():
    page = assert_sound(page_html(samples_page(em.load_scenario(SMALL), samples(), "energymodel sweep")))
    assert page.headings[1:4] == ["Distributions", "Chance to stay within limits", "What makes the outputs uncertain"]
    assert {4e8, 5e8, 7e8} <= page.numbers("energy")
    words = " ".join(page.text)
    assert "The plan stays within all limits in 75 % of the samples." in words
    assert "node.fan_power takes part in 70 % of the variance of energy" in words
    assert {0.7, 0.65, 0.75} == {round(one, 9) for one in page.numbers("node.fan_power")} - {0.6, 0.55}
