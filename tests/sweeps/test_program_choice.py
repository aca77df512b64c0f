"""A sweep is evaluated by the faster of XLA and a kernel, by one of them from its first tile to its last."""

import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.sweeps.best_points import Points
from energymodel.sweeps.program_choice import WORTH, Kernel, choose
from energymodel.sweeps.tile_program import TileProgram
from sweeps.sweep_models import LIMITS, axes, sweep_model

POINTS = 5_000_000
TILES = 100


class Clock:
    """Seconds that pass when a program runs."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Timed:
    """What `choose` needs of a program: it takes so long for a tile, and finds these values."""

    def __init__(self, name, clock, seconds, values=(3.0, np.inf), error=None):
        self.name, self.grid, self.function, self.points = name, self, None, POINTS * TILES
        self._clock, self._seconds, self._values, self._error = clock, seconds, values, error
        self.runs = 0

    def points_of_tile(self, number):
        return POINTS

    def run(self, number):
        if self._error is not None:
            raise self._error
        self.runs += 1
        self._clock.now += self._seconds
        return Points(np.array(self._values), np.zeros(2), np.zeros(2))


def chosen(xla_seconds, kernel_seconds, forced=False, earlier=None, tiles=TILES, **kernel):
    clock = Clock()
    programs = Timed("XLA", clock, xla_seconds), Timed("fast", clock, kernel_seconds, **kernel)
    program, choice = choose(programs[0], lambda _: Kernel(programs[1], forced), tiles, earlier, clock)  # pyright: ignore
    assert program.name == choice.program
    return choice, programs


@pytest.mark.parametrize(("xla", "kernel", "faster"), [(2.0, 1.0, "fast"), (1.0, 2.0, "XLA"), (1.0, 1.0, "XLA")])
def test_the_faster_one_of_a_timed_tile_is_chosen(xla, kernel, faster):
    choice, _ = chosen(xla, kernel)
    assert choice.program == faster
    assert choice.rates == {"XLA": POINTS / xla, "fast": POINTS / kernel}


def test_both_rates_are_stated():
    # 5e6 points in 2 s and in 1 s
    expected = "Evaluated by fast: it is the faster one. Million points/s of the first tile: XLA 2.5, fast 5."
    assert chosen(2.0, 1.0)[0].sentence() == expected


def test_a_short_sweep_does_not_wait_for_a_kernel():
    choice, (_, kernel) = chosen(0.9 * WORTH / TILES, 1e-9)
    assert choice.program == "XLA"
    assert "less than a kernel takes to compile" in choice.sentence()
    assert kernel.runs == 0


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ({"values": (3.001, np.inf)}, "values of fast differ by 0.0003"),
        ({"values": (3.0, 4.0)}, "values of fast differ by inf"),
        ({"values": (np.nan, np.inf)}, "values of fast differ by inf"),
        ({"error": NotImplementedError("no rule for sort\nlong trace")}, "NotImplementedError: no rule for sort)"),
    ],
)
def test_a_kernel_that_fails_or_differs_is_left_out(kernel, words):
    choice, _ = chosen(2.0, 1.0, **kernel)
    assert choice.program == "XLA"
    assert words in choice.sentence()


def test_a_forced_kernel_is_not_timed():
    choice, programs = chosen(1.0, 2.0, forced=True)
    assert choice.sentence() == "Evaluated by fast: it was asked for."
    assert [program.runs for program in programs] == [0, 0]


@pytest.mark.parametrize(("earlier", "slower"), [("XLA", 0.1), ("fast", 10.0)])
def test_a_resumed_sweep_keeps_its_program(earlier, slower):
    choice, programs = chosen(1.0, slower, earlier=earlier)
    assert choice.program == earlier
    assert [program.runs for program in programs] == [0, 0]


def test_no_offer_is_no_choice():
    program = Timed("XLA", Clock(), 1.0)
    assert choose(program, None, TILES)[1].sentence() == "Evaluated by XLA: no kernel was offered."  # pyright: ignore
    assert choose(program, lambda _: "there is none", TILES, "XLA")[1].reason == "there is none"  # pyright: ignore


class OtherProgram(TileProgram):
    """The program of XLA under another name, as a kernel would have it."""

    name = "other"

    @classmethod
    def offer(cls, program):
        return Kernel(cls(program.function, program.grid, program.reduction), forced=True)


def sweep(folder, **changes):
    arguments = {"minimize": "energy", "limits": LIMITS, "chunk": 60, "tile": 120, "resume": folder, **changes}
    return em.sweep(sweep_model, axes(7, 5, 3, 6), "top:3", **arguments)


def test_a_folder_knows_who_evaluated_it(tmp_path):
    first = sweep(tmp_path, kernel=OtherProgram.offer)
    assert first.choice.program == "other"
    tiles = sorted((tmp_path / "tiles").glob("*.tile"))
    intact = [path.read_bytes() for path in tiles]
    tiles[1].unlink()
    with pytest.raises(InputError, match="evaluated by other, and XLA rounds differently"):
        sweep(tmp_path)
    again = sweep(tmp_path, kernel=OtherProgram.offer)
    assert again.choice.sentence() == "Evaluated by other: so were the tiles that are finished."
    assert [path.read_bytes() for path in tiles] == intact
    assert again.winners == first.winners
    # Without the name, the tiles belong to no program, and are computed again.
    (tmp_path / "program").unlink()
    told = []
    assert sweep(tmp_path, progress=told.append).choice.program == "XLA"
    assert not any("are finished" in sentence for sentence in told)
    with pytest.raises(InputError, match="evaluated by XLA, and other rounds differently"):
        sweep(tmp_path, kernel=OtherProgram.offer)
