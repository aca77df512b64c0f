"""Tests run in float64 unless a module says otherwise, compile quickly, share what they compile, and free memory."""

import ctypes
import gc
import os
import resource
from importlib.metadata import version

# Compiling takes most of the time of the tests. Fusion emitters and optimized machine code take half of that, and
# splitting a program for several threads a tenth (`compilation.compiler_options`). Emitting the code of a loop as one
# function takes minutes instead of seconds where its body is a whole run.
os.environ["XLA_FLAGS"] = " ".join(
    (
        os.environ.get("XLA_FLAGS", ""),
        *(("--xla_cpu_use_fusion_emitters=false",) if version("jaxlib") < "0.11" else ()),  # later ones lack it
        "--xla_backend_optimization_level=0",
        "--xla_cpu_parallel_codegen_split_count=1",
        "--xla_disable_hlo_passes=small-while-loop-hoisting",
    )
)

import hypothesis
import jax
import pytest

from energymodel.runtime.compilation import Compiled

MEMORY, PROGRAMS = 1.1e9, 0.3e9  # bytes that a process may keep after a test, and above what is no program
LARGEST = ("test_sensitivity", "test_optimize", "test_result")  # files of tests/search whose searches take most memory
ALLOWED = pytest.StashKey[float]()
COMPILED: list[Compiled] = []
"""Those that were imported with the tests, which `gc.get_objects` leaves out once they are frozen."""
PEAKS = pytest.StashKey[list[int]]()


def pytest_configure(config):
    """Keep compiled programs for the other processes and the next run; draw the same examples in every run."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder = str(config.cache.mkdir("jax"))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # A run of all tests says whether a change broke something: new examples are another question, asked by
    # `--hypothesis-profile=search`.
    hypothesis.settings.register_profile("repeat", derandomize=True, database=None, deadline=None, max_examples=25)
    hypothesis.settings.register_profile("search", derandomize=False, deadline=None)
    if not config.getoption("--hypothesis-profile"):
        hypothesis.settings.load_profile("repeat")
    config.stash[PEAKS] = []
    config.stash[ALLOWED] = MEMORY


def pytest_collection_finish():
    """Let the garbage collector leave what was imported alone, and look less often at what tracing makes."""
    gc.collect()
    COMPILED[:] = (entry for entry in gc.get_objects() if issubclass(type(entry), Compiled))
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def pytest_collection_modifyitems(items):
    """Search first, largest programs first: what later tests keep does not add to what compiling these takes.

    Then the longest file, which at the end would keep one process busy alone.
    """
    items.sort(key=lambda item: (item.path.parent.name != "search", item.path.stem not in LARGEST))
    items.sort(key=lambda item: (item.path.parent.name != "search", item.path.stem != "test_worked_numbers"))


@pytest.fixture(autouse=True)
def _precision(request):
    """Enter float64, or float32 where the test module sets `PRECISION = 32`."""
    with jax.enable_x64(getattr(request.module, "PRECISION", 64) == 64):
        yield


@pytest.fixture(autouse=True)
def _memory(request):
    """Give memory back; forget compiled programs if they hold too much, a later test finds them in JAX's folder."""
    yield
    allowed = request.config.stash[ALLOWED]
    if resident_memory() > allowed:
        give_memory_back()
    if resident_memory() > allowed:
        forget_programs()
        # What is left is no program: with nothing above it every test would compile anew.
        request.config.stash[ALLOWED] = max(MEMORY, resident_memory() + PROGRAMS)


@pytest.fixture(scope="module")
def room():
    """Forget what was compiled before a whole search is, which takes most of a gigabyte."""
    forget_programs()


def forget_programs() -> None:
    """Drop all compiled programs."""
    for entry in (*COMPILED, *gc.get_objects()):
        if issubclass(type(entry), Compiled):
            entry._programs.clear()
    jax.clear_caches()
    gc.collect()
    give_memory_back()


def give_memory_back() -> None:
    """Return what the compiler has freed to the system, which the C library otherwise keeps."""
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def resident_memory() -> float:
    """Memory of this process [B]."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except OSError:  # not Linux
        return 0.0


def pytest_sessionfinish(session):
    """Tell the first process how much memory this one needed."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = peak
    elif not session.config.stash[PEAKS]:
        session.config.stash[PEAKS].append(peak)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Collect the peak memory of a worker."""
    node.config.stash[PEAKS].append(getattr(node, "workeroutput", {}).get("peak", 0))


def pytest_terminal_summary(terminalreporter, config):
    """Print the peak memory of each process that ran tests."""
    terminalreporter.write_line("peak memory: " + ", ".join(f"{peak / 1e6:.2f} GB" for peak in config.stash[PEAKS]))


@pytest.fixture
def folder(tmp_path):
    """An empty folder for compiled programs."""
    old = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", old)
