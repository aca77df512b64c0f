"""Time of the main command on its first run, its second run, and where JAX alone keeps its programs.

Prints wall-clock seconds of whole processes, on empty cache folders of their own, and the ratio of the last two; then
those of other commands, the first and the second time after it; last, wall-clock and CPU seconds of a later `evaluate`
of a model of 1.2B parameters, the lowest of several, which `python benchmarks/second_run.py small` prints alone.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

SCENARIO = "llama-3.1-405b-h100"
MAIN = ("optimize", SCENARIO)
AXES = ("--axis", "plan.batch=8..64 Mi token log 100", "--axis", "plan.clock=0.5..1 linear 100")
DOCS = Path(__file__).parents[1] / "docs"
OTHERS = (
    ("pareto", SCENARIO),
    ("sensitivity", SCENARIO),
    ("sweep", SCENARIO, *AXES),
    ("predict", str(DOCS / "quick_start" / "train.toml"), "--accelerator", "h100-sxm", "--chips", "64"),
    ("calibrate", "power", str(DOCS / "tutorials" / "power_limits.csv")),
    ("evaluate", SCENARIO),
)
SMALL, REPEATS = ("evaluate", "test-1b-h100"), 5
OURS = "from energymodel.cli import main; main()"
JAX_ALONE = f"from energymodel.runtime.compilation import Compiled; Compiled._path = lambda *_: None; {OURS}"


def measure(code: str, settings: Mapping[str, str], arguments: Sequence[str] = MAIN) -> float:
    """Seconds of one process."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *arguments], env={**others, **settings}, check=True, capture_output=True
    )
    return time.perf_counter() - start


def small_run(settings: Mapping[str, str]) -> str:
    """The lowest wall-clock and CPU seconds of processes that evaluate a small model after a first one."""
    measure(OURS, settings, SMALL)
    walls, times = [], [_cpu_of_children()]
    for _ in range(REPEATS):
        walls.append(measure(OURS, settings, SMALL))
        times.append(_cpu_of_children())
    lowest = min(after - before for before, after in pairwise(times))
    return f"{' '.join(SMALL)}: later runs {min(walls):.2f} s, of which {lowest:.2f} s of CPU"


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours = {"XDG_CACHE_HOME": folder}
        if sys.argv[1:] == ["small"]:
            print(small_run(ours))
            return
        alone = {
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        first, second = measure(OURS, ours), measure(OURS, ours)
        others = {command: (measure(OURS, ours, command), measure(OURS, ours, command)) for command in OTHERS}
        small = small_run(ours)
        _, traced = measure(JAX_ALONE, alone), measure(JAX_ALONE, alone)
    print(
        f"{' '.join(MAIN)}: first {first:.1f} s, second {second:.1f} s; where JAX alone keeps programs, second "
        f"{traced:.1f} s, {traced / second:.2f} times as long"
    )
    for command, (initial, again) in others.items():
        print(f"{command[0]} after it: first {initial:.1f} s, second {again:.1f} s")
    print(small)


if __name__ == "__main__":
    main()
