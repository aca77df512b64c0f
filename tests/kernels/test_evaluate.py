"""The whole model inside a kernel, from a flat vector of parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate
from gpu_lowering import abstract_gpu

PRECISION = 32  # of kernels
# One of each structure: the others differ from them in numbers only, which are the kernel's input.
STRUCTURES = (
    "llama-3.1-405b-h100",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("chinchilla-70b-tpu-v4", "deepseek-v3-h800")),
)
BLOCK = 128  # lanes of one program
LANES = 2 * BLOCK
OUTPUTS = ("loss", "time", "energy", "money", "carbon", "memory")


def measure(system, plan):
    outcome = evaluate(system, plan)
    memory = outcome.slack.memory
    return outcome.loss, outcome.time, outcome.energy.total, outcome.money, outcome.carbon, memory


def fused(scenario, interpret):
    """A kernel that evaluates lanes of plans, and the parameters of the scenario at all lanes [parameter, lane]."""
    scalar = eqx.tree_at(lambda plan: plan.batch, scenario.plan, np.reshape(scenario.plan.batch, ()))
    leaves, structure = jax.tree.flatten((scenario.system, scalar))

    def kernel(parameters, *outputs):
        rows = [parameters[index, :] for index in range(len(leaves))]
        lanes = jax.vmap(lambda *leaves: measure(*jax.tree.unflatten(structure, leaves)))(*rows)
        for output, value in zip(outputs, lanes, strict=True):
            output[:] = value

    launch = pl.pallas_call(
        kernel,
        grid=(LANES // BLOCK,),
        in_specs=[pl.BlockSpec((len(leaves), BLOCK), lambda program: (0, program))],
        out_specs=[pl.BlockSpec((BLOCK,), lambda program: (program,))] * len(OUTPUTS),
        out_shape=[jax.ShapeDtypeStruct((LANES,), jnp.float32)] * len(OUTPUTS),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=4),
        name="evaluate",
    )
    return launch, np.repeat(np.asarray(leaves, np.float32)[:, None], LANES, axis=1), structure


@pytest.mark.parametrize("name", STRUCTURES)
def test_evaluate_lowers_for_cuda(name):
    launch, parameters, _ = fused(load_scenario(name), interpret=False)
    with abstract_gpu():
        lowered = jax.jit(launch).trace(parameters).lower(lowering_platforms=("cuda",))
    assert "__gpu$xla.gpu.triton" in lowered.as_text() or "triton_kernel_call" in lowered.as_text()


@pytest.mark.slow
def test_a_kernel_computes_what_evaluate_computes():
    scenario = load_scenario("llama-3.1-405b-h100")
    launch, parameters, structure = fused(scenario, interpret=True)
    # Batch, clock, chips and tensor degree vary over the lanes.
    paths = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path((scenario.system, scenario.plan))
    ]
    draw = np.random.default_rng(1)
    for path, values in {
        "[1].batch": np.exp(draw.uniform(np.log(1e6), np.log(1e8), LANES)),
        "[1].clock": draw.uniform(0.2, 1.0, LANES),
        "[1].chips": 128.0 * draw.integers(1, 256, LANES),
        "[1].layout.tensor": draw.choice([1.0, 2.0, 4.0, 8.0], LANES),
    }.items():
        parameters[paths.index(path)] = values
    lanes = jax.vmap(lambda leaves: measure(*jax.tree.unflatten(structure, list(leaves))))
    fast = compiler_options()
    in_kernel = jax.jit(launch, compiler_options=fast)(parameters)
    plain = jax.jit(lanes, compiler_options=fast)(parameters.T)
    for fused_values, values in zip(in_kernel, plain, strict=True):
        np.testing.assert_allclose(fused_values, values, rtol=2e-5, atol=1e-5)
