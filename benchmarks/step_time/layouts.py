"""Layouts per second that the model times, in float32 on one core, with memory.

`taskset -c 0 python benchmarks/step_time/layouts.py [COUNT]` prints the rate and its ratio to one call for each row.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import INPUTS, layouts
from energymodel.calibration.step_prediction import predict_row

CHUNK = 4096
ROW = {"cluster": "megatron-a100", "model": "megatron-175b", "chips": 1024, "batch_sequences": 1536}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    system = jax.tree.map(jnp.float32, cluster_scenario("megatron-a100").system)
    table = layouts([ROW])
    columns = {column.name: np.full(count, table.columns[column.name][0]) for column in INPUTS}
    rng = np.random.default_rng(0)
    varied = {
        "tensor": 2.0 ** rng.integers(0, 4, count),
        "pipeline": 2.0 ** rng.integers(0, 5, count),
        "microbatch": 2.0 ** rng.integers(0, 4, count),
        "recompute_full": 1.0 * rng.integers(0, 2, count),
    }
    varied = {name: jnp.asarray(each.reshape(-1, CHUNK), jnp.float32) for name, each in {**columns, **varied}.items()}

    def step_time_of(row):
        answer = predict_row(system, row)
        return answer.step_time.total, answer.memory

    chunks = jax.jit(lambda table: jax.lax.map(jax.vmap(step_time_of), table))
    single = jax.jit(step_time_of)
    jax.block_until_ready(chunks(varied))
    first = {name: values[0, 0] for name, values in varied.items()}
    jax.block_until_ready(single(first))
    best = min(timed(lambda: jax.block_until_ready(chunks(varied))) for _ in range(5))
    alone = min(timed(lambda: jax.block_until_ready(single(first))) for _ in range(20))
    print(f"{count / best:.3g} layouts/s with memory in float32; {count / best * alone:.0f} times one call for each")


def timed(run) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


if __name__ == "__main__":
    main()
