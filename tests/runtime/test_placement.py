"""Where programs run: small ones on the CPU, and what they keep in threads."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import pytest

from cli.shell import run
from energymodel.cli.shell import placed
from energymodel.errors import InputError
from energymodel.runtime.placement import for_threads, platform


def test_small_programs_start_no_other_platform_than_the_cpu():
    script = """
import os
from energymodel.cli.shell import placed
os.environ.pop("JAX_PLATFORMS", None)
with placed(None, large=True):
    assert "JAX_PLATFORMS" not in os.environ
with placed(None):
    print(os.environ["JAX_PLATFORMS"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "cpu\n", done.stderr


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU")
def test_a_device_that_is_not_there_is_named_with_what_to_do():
    result = run("evaluate", "test-1b-h100", "--device", "gpu")
    assert result.exit_code == 2
    assert "finds no gpu" in result.stderr
    assert "energymodel doctor" in result.stderr
    with pytest.raises(InputError, match=r'"tpu" is no device\. Choose one of cpu, gpu'):
        placed("tpu")


def test_threads_keep_precision_and_device():
    def precision(_):
        return jnp.zeros(1).dtype, platform()

    with ThreadPoolExecutor(1) as threads, jax.enable_x64(False), placed("cpu"):
        assert threads.submit(for_threads(precision), 0).result() == (jnp.float32, "cpu")
