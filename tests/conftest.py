"""Tests run in float64 unless a module says otherwise, compile quickly, and share what they compile."""

import os

# Compiling takes most of the time of the tests, half of it in these optimizations (`compilation.compiler_options`).
os.environ["XLA_FLAGS"] = " ".join(
    (os.environ.get("XLA_FLAGS", ""), "--xla_cpu_use_fusion_emitters=false", "--xla_backend_optimization_level=0")
)

import jax
import pytest


def pytest_configure(config):
    """Keep compiled programs for the other processes of this run, and for the next run."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder = str(config.cache.mkdir("jax"))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True)
def _precision(request):
    """Enter float64, or float32 where the test module sets `PRECISION = 32`."""
    with jax.enable_x64(getattr(request.module, "PRECISION", 64) == 64):
        yield
