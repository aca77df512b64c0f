"""Does a search over batches find the one of lowest energy in few runs, also where there are two minima?"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.calibration.job_search import next_batch, search_job
from energymodel.errors import InputError

BATCHES = [2.0**k for k in range(2, 15)]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(BATCHES), st.sampled_from(BATCHES), st.floats(0.05, 0.6))
def test_one_minimum_is_found_in_eight_runs(best, first, curvature):
    energy = {batch: np.exp(curvature * np.log2(batch / best) ** 2) for batch in BATCHES}
    tried = search_job(energy.__getitem__, BATCHES, first)
    assert len(tried) == 8
    assert min(tried, key=lambda one: tried[one]) == best


def test_a_second_minimum_is_found_beyond_a_ridge():
    energy = {4.0: 0.8, 8.0: 1.1, 16.0: 1.05, 32.0: 1.0, 64.0: 1.1, 128.0: 1.3, 256.0: 1.6, 512.0: 2.1, 1024.0: 3.0}
    assert 4.0 in search_job(energy.__getitem__, list(energy), 32.0)


def test_runs_that_miss_the_target_count_and_the_search_goes_on():
    energy = {batch: (1.0 + abs(np.log2(batch / 128)) if 32 <= batch <= 512 else np.inf) for batch in BATCHES}
    tried = search_job(energy.__getitem__, BATCHES, 4.0)
    assert min(tried.values()) == 1.0
    assert set(search_job(lambda _: np.inf, [1.0, 2.0, 4.0], 1.0)) == {1.0, 2.0, 4.0}


def test_the_last_runs_are_beside_the_best():
    tried = {4.0: 3.0, 64.0: 1.0, 4096.0: 5.0}
    assert next_batch(BATCHES, tried, 4.0, 2) in (32.0, 128.0)
    assert next_batch(BATCHES, tried | {32.0: 2.0}, 4.0, 1) == 128.0


def test_nothing_left_is_none_and_bad_input_is_named():
    assert next_batch([8.0], {8.0: 1.0}, 8.0, 3) is None
    assert next_batch([8.0, 16.0], {8.0: 1.0}, 8.0, 0) is None
    assert next_batch([8.0, 16.0], {}, 100.0, 1) == 16.0
    with pytest.raises(InputError, match="tried: batch 7 is not one of the batches 8, 16"):
        next_batch([8.0, 16.0], {7.0: 1.0}, 8.0, 1)
    with pytest.raises(InputError, match="give the batches that may be run"):
        next_batch([0.0, 16.0], {}, 8.0, 1)
