"""One process of a sweep in a test: `python worker.py FOLDER RESULT [ENGINE [COUNT INDEX PORT]]`.

It sweeps a model slow enough to be killed in the middle, and writes what it found to RESULT, bit by bit.
"""

import sys
from pathlib import Path

import jax
import numpy as np

import energymodel as em
from sweeps.sweep_models import LIMITS, axes, sweep_model

SIZES = (24, 20, 22, 16)
CHUNK, TILE = 700, 2000


def main(folder, result, engine=None, count="1", index="0", port="0"):
    if int(count) > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", int(count), int(index))
    swept = em.sweep(
        sweep_model,
        axes(*SIZES),
        "pareto:energy,time",
        minimize="energy",
        limits=LIMITS,
        chunk=CHUNK,
        tile=TILE,
        resume=None if folder == "-" else folder,
        engine=engine,
        progress=lambda text: print(text, flush=True),
    )
    outputs = np.array([[one.value, *one.index] for one in swept.winners])
    Path(result).write_bytes(outputs.tobytes())
    print(f"found {len(outputs)} of {swept.points}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
