"""Compiled functions of the host: same results, a program per form, kept between processes and never when in doubt."""

import json
import os
import subprocess
import sys
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.learning.loss_law import effective_parameters
from energymodel.performance.parallelism import bubble_fraction
from energymodel.runtime import compilation, lowered_programs
from energymodel.runtime.cache_folder import FOLDER
from energymodel.runtime.compilation import PACKAGE, Compiled, compiler_options, concurrently, jit
from energymodel.scenarios.scenario import load_scenario
from energymodel.solver import PerConstraint, minimize
from energymodel.sweeps.points import _evaluate
from energymodel.system.evaluate import evaluate, evaluate_once

IN_A_PROCESS = """
import jax
from energymodel.runtime.compilation import Compiled
from energymodel.performance import parallelism
from energymodel.performance.parallelism import bubble_fraction
traced = []
def spy(value):
    traced.append(True)
    return jax.numpy.asarray(value)
others = {name: staticmethod(getattr(jax.numpy, name)) for name in ("maximum", "minimum")}
parallelism.jnp = type("Spied", (), {"asarray": staticmethod(spy), **others})
print(float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)), bool(traced))
"""


FACTORIZED_IN_A_PROCESS = """
import numpy as np
from energymodel.runtime.compilation import Compiled
from energymodel.solver.newton_system import factorize
factor, _, _ = Compiled(factorize)(4.0 * np.eye(3), np.float64(1.0), np.ones(3), np.float64(0.0))
print(np.diag(factor).tolist())
"""


def held(folder):
    return sorted(folder.glob(f"{PACKAGE}-*"))


def printed_by_two_processes(code, folder):
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder)}
    run = [sys.executable, "-c", code]
    return [
        subprocess.run(run, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout.split()
        for _ in range(2)
    ]


def test_programs_are_kept_between_processes(tmp_path):
    assert printed_by_two_processes(IN_A_PROCESS, tmp_path) == [["0.21875", "True"], ["0.21875", "False"]]
    assert len(held(tmp_path)) == 1


def test_a_kept_program_finds_lapack(tmp_path):
    first, second = printed_by_two_processes(FACTORIZED_IN_A_PROCESS, tmp_path)
    assert first == second == ["[2.0,", "2.0,", "2.0]"]
    assert len(held(tmp_path)) == 1


def test_numbers_share_a_program_and_forms_do_not(folder):
    compiled = Compiled(bubble_fraction)
    assert float(compiled(8.0, 2.0, 16.0)) == 7 / 32
    assert float(compiled(4.0, 1.0, 16.0)) == 3 / 16
    assert len(held(folder)) == 1
    assert compiled(jnp.ones(3), 2.0, 16.0).shape == (3,)
    assert len(held(folder)) == 2
    Compiled(effective_parameters)(8.0, 2.0, 16.0)
    assert len(held(folder)) == 3
    with jax.enable_x64(not jax.config.values["jax_enable_x64"]):
        Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    assert len(held(folder)) == 4


def test_a_function_of_numbers_is_that_of_its_arguments(folder):
    compiled = Compiled(bubble_fraction)
    of_numbers, structure = compiled.of_numbers(8.0, 2.0, 16.0)
    for numbers in ([8.0, 2.0, 16.0], [4.0, 1.0, 16.0]):
        assert float(jax.tree.unflatten(structure, of_numbers(numbers))) == float(compiled(*numbers))
    assert len(held(folder)) == 1


def test_functions_that_may_change_unseen_are_not_kept(folder):
    factor = 3.0

    def local(x):
        return factor * x

    assert float(Compiled(local)(2.0)) == 6.0
    typed = {}  # at a prompt, or in a document: a function of no module
    exec("def tripled(x):\n    return 3.0 * x", typed)
    typed["tripled"].__module__ = None
    assert float(Compiled(typed["tripled"])(2.0)) == 6.0
    assert held(folder) == []


class Multiple(eqx.Module):
    factor: jax.Array

    def __call__(self, x):
        return {"product": self.factor * x}


def test_classes_that_may_change_unseen_are_not_kept(folder):
    rows = {"x": np.arange(3.0)}
    result = Compiled(_evaluate)(Multiple(jnp.asarray(2.0)), rows)
    np.testing.assert_array_equal(result["product"], [0.0, 2.0, 4.0])
    assert held(folder) == []


def test_the_program_that_was_used_last_is_preloaded(folder):
    Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    again = Compiled(bubble_fraction)
    again.preload()
    (path,) = held(folder)
    path.unlink()
    assert float(again(8.0, 2.0, 16.0)) == 7 / 32
    assert held(folder) == []  # it came from memory, and was not made again


def test_nothing_is_preloaded_where_nothing_was_kept(folder):
    compiled = Compiled(bubble_fraction)
    compiled.preload()
    assert not compiled.traced
    assert float(compiled(8.0, 2.0, 16.0)) == 7 / 32


def packed(**description):
    """A stored program that describes its result so, and holds nothing else."""
    return zlib.compress(json.dumps(description).encode() + b"\n")


@pytest.mark.parametrize(
    "damage",
    [
        lambda program: b"",
        lambda program: b"short",
        lambda program: program[:-1] + bytes([program[-1] ^ 1]),
        lambda program: zlib.compress(b"no JSON at all"),
        lambda program: zlib.compress(b"[0]\nno program"),
        lambda program: packed(type="os:system"),
        lambda program: packed(type="builtins:exec", list=[]),
        lambda program: packed(type="energymodel.runtime.lowered_programs:os.system", list=[]),
        lambda program: packed(type="energymodel.runtime.lowered_programs:Path", list=["planted"]),
        lambda program: packed(type="energymodel.runtime.compilation:Compiled", list=[]),
        lambda program: packed(type="energymodel.system.outcome:NoSuchClass"),
    ],
)
def test_a_damaged_program_is_made_again_and_says_so(folder, caplog, damage):
    Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    (path,) = held(folder)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert path.name in caplog.text
    assert "made again" in caplog.text
    assert held(folder) == [path]
    assert path.read_bytes() != damaged
    caplog.clear()
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert caplog.text == ""


def test_a_result_that_is_no_plain_tree_is_computed_and_not_kept(folder, monkeypatch, caplog):
    monkeypatch.setattr(lowered_programs, "_describe", lambda tree: object())
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert held(folder) == []
    assert "cannot be kept: Object of type object is not JSON serializable" in caplog.text


def test_the_structure_of_a_result_survives_its_file():
    scenario = load_scenario("test-1b-h100")
    solution = minimize(lambda x: jnp.sum((x["a"] - 1.0) ** 2), {"a": jnp.zeros(2)})
    tree = (scenario.system, scenario.plan, solution, [None, {"name": 1.0}], PerConstraint(1.0, None, (), 2.0))
    structure = jax.tree.structure(tree)
    numbered = jax.tree.unflatten(structure, range(structure.num_leaves))
    rebuilt = lowered_programs._rebuild(json.loads(json.dumps(lowered_programs._describe(numbered))))
    assert jax.tree.structure(rebuilt) == structure
    assert jax.tree.leaves(rebuilt) == list(range(structure.num_leaves))


def test_a_folder_that_cannot_be_written_only_costs_time(folder):
    jax.config.update("jax_compilation_cache_dir", str(folder / "missing"))
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32


def test_a_folder_that_others_can_write_is_not_used(folder, caplog):
    Compiled(bubble_fraction)(8.0, 2.0, 16.0)
    (path,) = held(folder)
    folder.chmod(0o777)
    path.write_bytes(b"planted")
    assert float(Compiled(bubble_fraction)(8.0, 2.0, 16.0)) == 7 / 32
    assert path.read_bytes() == b"planted"
    assert f"others can write to {folder}" in caplog.text


def test_threads_share_one_program_and_the_precision_of_the_caller():
    traced = []

    def spied(x):
        traced.append(x)
        return 2.0 * x

    compiled = Compiled(spied)
    with jax.enable_x64(True):
        results = concurrently(compiled, [np.float64(k) for k in range(9)])
    assert [float(entry) for entry in results] == [2.0 * k for k in range(9)]
    assert {entry.dtype for entry in results} == {np.dtype(np.float64)}
    assert len(traced) == 1


def test_errors_of_the_function_reach_the_caller():
    with pytest.raises(TypeError, match="virtual_stages"):
        Compiled(bubble_fraction)(8.0)


def test_a_compiled_gradient_is_the_slope_of_differences():
    chip = load_scenario("test-1b-h100").system.accelerator

    def power(clock, factors):
        return factors["dynamic"] * chip.voltage(clock) ** 2 * clock

    factors = {"dynamic": jnp.asarray(chip.dynamic_power)}
    slope = jit(jax.grad(power))(0.9, factors)
    difference = (power(0.9 + 1e-5, factors) - power(0.9 - 1e-5, factors)) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-6)


@pytest.mark.slow
def test_the_compiled_gradient_of_a_run_is_the_slope_of_differences():
    scenario = load_scenario("test-1b-h100", {"plan.clock": 0.9})

    def energy(plan, *, system):
        return evaluate(system, plan).energy.total

    def at(clock):
        plan = eqx.tree_at(lambda plan: plan.clock, scenario.plan, clock)
        return float(evaluate_once(scenario.system, plan).energy.total)

    slope = jit(jax.grad(energy))(scenario.plan, system=scenario.system).clock
    np.testing.assert_allclose(slope, (at(0.9 + 1e-5) - at(0.9 - 1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="counts the maps of memory of a process of Linux")
def test_a_compiled_gradient_takes_few_maps_of_memory():
    """A kernel that is a file of its own takes three of them, and Linux gives a process 65,530."""
    script = """
import functools, pathlib, jax, energymodel as em
def maps():
    return len(pathlib.Path("/proc/self/maps").read_text().splitlines())
slope = em.jit(jax.grad(lambda x: functools.reduce(lambda y, k: jax.numpy.sin(y + 0.1 * k), range(300), x)))
jax.jit(jax.numpy.sin)(0.5)
before = maps()
slope(0.5)
print(maps() - before)
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", FOLDER)}
    run = subprocess.run((sys.executable, "-c", script), env=environment, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 300


def test_a_compiled_function_is_differentiated_batched_and_compiled_as_a_part():
    """At zero the function states its own derivative, which a program that is compiled as a whole has lost."""
    ramp, points = jit(jax.nn.relu), jnp.array([-1.0, 0.0, 2.0])
    assert float(ramp(2.0)) == 2.0
    for slope in (jax.vmap(jax.grad(ramp)), jax.jit(jax.vmap(jax.grad(ramp))), jit(jax.vmap(jax.grad(ramp)))):
        assert slope(points).tolist() == [0.0, 0.0, 1.0]
    assert float(jax.grad(lambda x: jit(lambda factor: factor * jax.nn.relu(x))(3.0))(0.0)) == 0.0


def test_an_option_that_this_jax_lacks_is_left_out(monkeypatch):
    monkeypatch.setattr(compilation, "KEEP_BARRIERS", {"xla_an_option_of_another_year": 1})
    assert "xla_an_option_of_another_year" not in compiler_options()
    assert jax.jit(lambda x: 2.0 * x, compiler_options=compiler_options(tile=True))(1.5) == 3.0
