"""Rows that are padded to whole vector registers give the results of rows that are not."""

import pytest

import energymodel as em
from energymodel.sweeps import tile_program
from energymodel.sweeps.sweep import prepare_sweep
from energymodel.sweeps.tile_program import wide_vectors
from sweeps.sweep_models import LIMITS, axes, sweep_model

LENGTHS = (5, 7, 6, 13)
ORDER = ("batch", "clock", "nodes", "voltage")


@pytest.mark.parametrize("keep", ["top:40", "bins:energy,time", "pareto:energy,time"])
def test_padding_changes_no_result(monkeypatch, keep):
    found = []
    for wide in (True, False):
        monkeypatch.setattr(tile_program, "wide_vectors", lambda wide=wide: wide)
        # Blocks of 4 of 7 clocks: the axis that is cut is padded as well.
        swept = em.sweep(
            sweep_model, axes(*LENGTHS), keep, minimize="energy", limits=LIMITS, order=ORDER, chunk=4 * 6 * 13, tile=1
        )
        found.append((swept.result, [winner.index for winner in swept.winners]))
    assert found[0] == found[1]
    assert found[0][0] or found[0][1]


def test_rows_are_padded_without_wide_vectors_only(monkeypatch):
    for flag, wide in (("--xla_cpu_max_isa=AVX2", False), ("--xla_cpu_max_isa=SSE4_2", False)):
        monkeypatch.setenv("XLA_FLAGS", flag)
        assert wide_vectors() is wide
    rows = []
    for wide in (True, False):
        monkeypatch.setattr(tile_program, "wide_vectors", lambda wide=wide: wide)
        prepared = prepare_sweep(sweep_model, axes(*LENGTHS), "count", limits=LIMITS, order=ORDER)
        rows.append(prepared.program._row())
    assert rows == [13, 16]
