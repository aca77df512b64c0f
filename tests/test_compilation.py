"""Compiled functions of the host: same results, a program per form, kept between processes and never when in doubt."""

import hashlib
import os
import pickle
import subprocess
import sys
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

from energymodel.compilation import PACKAGE, Compiled, concurrently
from energymodel.learning.loss_law import effective_parameters
from energymodel.performance.parallelism import bubble_fraction
from energymodel.presets.scenario import load_scenario
from energymodel.system.evaluate import evaluate, evaluate_once

IN_A_PROCESS = """
import jax
from energymodel.compilation import Compiled
from energymodel.performance import parallelism
from energymodel.performance.parallelism import bubble_fraction
traced = []
def spy(value):
    traced.append(True)
    return jax.numpy.asarray(value)
parallelism.jnp = type("Spied", (), {"asarray": staticmethod(spy)})
print(float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)), bool(traced))
"""


FACTORIZED_IN_A_PROCESS = """
import numpy as np
from energymodel.compilation import Compiled
from energymodel.solver.interior_point import factorize
factor, _, _ = Compiled(factorize)(4.0 * np.eye(3), np.float64(1.0), np.ones(3), np.float64(0.0))
print(np.diag(factor).tolist())
"""


@pytest.fixture
def folder(tmp_path):
    old = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", old)


def kept(folder):
    return sorted(folder.glob(f"{PACKAGE}-*"))


def test_result_is_that_of_the_function():
    scenario = load_scenario("test-1b-h100")
    ours = evaluate_once(scenario.system, scenario.plan)
    plain = evaluate(scenario.system, scenario.plan)
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6)


def printed_by_two_processes(code, folder):
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder)}
    run = [sys.executable, "-c", code]
    return [
        subprocess.run(run, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout.split()
        for _ in range(2)
    ]


def test_programs_are_kept_between_processes(tmp_path):
    assert printed_by_two_processes(IN_A_PROCESS, tmp_path) == [["0.21875", "True"], ["0.21875", "False"]]
    assert len(kept(tmp_path)) == 1


def test_a_kept_program_finds_lapack(tmp_path):
    first, second = printed_by_two_processes(FACTORIZED_IN_A_PROCESS, tmp_path)
    assert first == second == ["[2.0,", "2.0,", "2.0]"]
    assert len(kept(tmp_path)) == 1


def test_a_program_is_made_again_with_its_machine_code_where_jax_has_kept_it_too(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    printed_by_two_processes(FACTORIZED_IN_A_PROCESS, tmp_path)
    (path,) = kept(tmp_path)
    path.unlink()
    first, second = printed_by_two_processes(FACTORIZED_IN_A_PROCESS, tmp_path)
    assert first == second == ["[2.0,", "2.0,", "2.0]"]
    assert kept(tmp_path) == [path]


def test_numbers_share_a_program_and_forms_do_not(folder):
    compiled = Compiled(bubble_fraction)
    assert float(compiled(8.0, 2.0, 16.0)) == 7 / 32
    assert float(compiled(4.0, 1.0, 16.0)) == 3 / 16
    assert len(kept(folder)) == 1
    assert compiled(jnp.ones(3), 2.0, 16.0).shape == (3,)
    assert len(kept(folder)) == 2
    Compiled(effective_parameters)(8.0, 2.0, 16.0)
    assert len(kept(folder)) == 3
    with jax.enable_x64(not jax.config.values["jax_enable_x64"]):
        Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    assert len(kept(folder)) == 4


def test_functions_that_may_change_unseen_are_not_kept(folder):
    factor = 3.0

    def local(x):
        return factor * x

    assert float(Compiled(local)(2.0)) == 6.0
    assert kept(folder) == []


def test_the_program_that_was_used_last_is_foreseen(folder):
    Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    again = Compiled(bubble_fraction)
    again.foresee()
    (path,) = kept(folder)
    path.unlink()
    assert float(again(8.0, 2.0, 16.0)) == 7 / 32
    assert kept(folder) == []  # it came from memory, and was not made again


def test_nothing_is_foreseen_where_nothing_was_kept(folder):
    compiled = Compiled(bubble_fraction)
    compiled.foresee()
    assert not compiled.traced
    assert float(compiled(8.0, 2.0, 16.0)) == 7 / 32


def test_a_program_that_cannot_be_loaded_is_made_again_and_says_so(folder, caplog):
    Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    (path,) = kept(folder)
    nonsense = zlib.compress(pickle.dumps(("like", ("parts", "of", "nothing"))))
    path.write_bytes(hashlib.sha256(nonsense).digest() + nonsense)
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert path.name in caplog.text
    assert "made again" in caplog.text
    caplog.clear()
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert caplog.text == ""


def test_a_program_that_jax_cannot_serialize_is_not_kept(folder, monkeypatch, caplog):
    def refuse(compiled):
        raise ValueError("Compilation does not support serialization")

    monkeypatch.setattr(serialize_executable, "serialize", refuse)
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert kept(folder) == []
    assert "cannot be kept: Compilation does not support serialization" in caplog.text


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_program_is_made_again(folder, damage):
    Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    (path,) = kept(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?" if damage is None else damage)
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert len(kept(folder)) == 1
    assert path.read_bytes() not in (damage, whole[:-1] + b"?")


def test_a_folder_that_cannot_be_written_only_costs_time(folder):
    jax.config.update("jax_compilation_cache_dir", str(folder / "missing"))
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32


def test_threads_share_one_program_and_the_precision_of_the_caller():
    traced = []

    def spied(x):
        traced.append(x)
        return 2.0 * x

    compiled = Compiled(spied)
    with jax.enable_x64(True):
        results = concurrently(compiled, [np.float64(k) for k in range(9)])
    assert [float(one) for one in results] == [2.0 * k for k in range(9)]
    assert {one.dtype for one in results} == {np.dtype(np.float64)}
    assert len(traced) == 1


def test_errors_of_the_function_reach_the_caller():
    with pytest.raises(TypeError, match="virtual_stages"):
        Compiled(bubble_fraction)(8.0)
