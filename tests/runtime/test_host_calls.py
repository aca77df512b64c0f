"""Programs cut at their host calls: same results, calls under `vmap` and in loops, kept between processes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.runtime import host_calls
from energymodel.runtime.host_calls import CutProgram, host_call
from energymodel.solver.model_outside import StandIn

FACTORS = np.array([1.0, 2.0, 3.0])


def horner(stand_in, x, lane):
    """Values and slope at a point, and two rounds of a loop."""

    def values(x):
        result = stand_in(x, lane)
        return jnp.append(result.inequalities, result.objective)

    value, slope = jax.jvp(values, (x,), (jnp.ones_like(x),))
    _, rounds = jax.lax.scan(lambda at, step: (at + values(at)[0], values(at)[-1]), x, None, length=2)
    return value, slope, rounds


def over_lanes(stand_in, x, lanes):
    return jax.vmap(lambda x, lane: horner(stand_in, x, lane))(x, lanes)


def answer(asked, returned):
    """The objective `a sum(x)^2`, the row `a sum(x)`, with `a` that of the lane."""
    x, lanes = map(np.asarray, asked)
    factor, total = FACTORS[lanes], np.sum(x, axis=-1)
    values = np.stack([factor * total**2, factor * total], axis=-1)
    slopes = np.stack([2.0 * factor * total, factor], axis=-1)[..., None] * np.ones(x.shape[-1])
    return (values, slopes)[:returned]


def assert_answered(program):
    x = np.array([[1.0, 2.0], [0.5, 0.5], [2.0, -1.0]])
    value, slope, rounds = program(answer, StandIn(1), x, np.arange(3))
    total = x.sum(axis=1)
    np.testing.assert_allclose(value, np.stack([FACTORS * total, FACTORS * total**2], axis=1))
    np.testing.assert_allclose(slope, np.stack([2.0 * FACTORS, 4.0 * FACTORS * total], axis=1))
    then = total + 2.0 * FACTORS * total  # both coordinates move by the row
    np.testing.assert_allclose(rounds, np.stack([FACTORS * total**2, FACTORS * then**2], axis=1))


def test_the_host_answers_calls_under_vmap_and_in_loops():
    assert_answered(CutProgram(over_lanes, once=True))


def test_parts_are_kept_and_need_no_tracing(folder, monkeypatch):
    monkeypatch.setattr(over_lanes, "__module__", "energymodel.test")  # only programs of the package are kept
    assert_answered(CutProgram(over_lanes, once=True))
    assert len(list(folder.glob("energymodel-over_lanes-*"))) == 6  # five calls, and what comes after them
    monkeypatch.setattr(host_calls, "_open", None)
    assert_answered(CutProgram(over_lanes, once=True))


def test_a_missing_part_is_made_again(folder, monkeypatch):
    monkeypatch.setattr(over_lanes, "__module__", "energymodel.test")
    assert_answered(CutProgram(over_lanes, once=True))
    sorted(folder.glob("energymodel-over_lanes-*"))[2].unlink()
    assert_answered(CutProgram(over_lanes, once=True))
    assert len(list(folder.glob("energymodel-over_lanes-*"))) == 6


def test_a_host_call_outside_a_cut_program_says_what_to_do():
    with pytest.raises(Exception, match="answered by the caller"):
        jax.block_until_ready(host_call([jax.ShapeDtypeStruct((), np.dtype(float))], jnp.ones(())))
