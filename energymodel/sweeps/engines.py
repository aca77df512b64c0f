"""Engines that run tiles: in this process, on many devices, in many processes, on a cluster.

An engine takes a program and the numbers of the tiles to run, and yields each number with its state as it finishes, in
any order. The program is the same everywhere, so the engine does not change a bit of the result.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from threading import Lock
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from energymodel.errors import InputError
from energymodel.runtime.compilation import cached, compiler_options
from energymodel.runtime.placement import platform
from energymodel.sweeps.tile_program import TileProgram, TileTrace

Engine = Callable[[TileProgram, Sequence[int]], Iterator[tuple[int, Any]]]
RETRIES = 5
QUEUED = 4
"""Groups of tiles queued for each worker of a cluster, so that it never waits for the scheduler."""
MOST_TOGETHER = 16
"""Tiles of a group at most: the scheduler takes about ten milliseconds for each group."""
EACH, SAME = PartitionSpec("tile"), PartitionSpec()
TIMEOUT = "20s"
"""How long a scheduler may take to answer."""
_LOCK = Lock()
"""Held while a worker of a cluster compiles its program."""


def threads() -> int:
    """Tiles that run at once in this process: one for each core; two on an accelerator, one of which is prepared."""
    return len(os.sched_getaffinity(0)) if platform() == "cpu" else 2


def in_process(program: TileProgram, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Run tiles in threads, one for each core; states come in the order of the numbers."""
    _ = program.hint if numbers else None  # computed once
    workers, running = threads(), deque[tuple[int, Future[Any]]]()
    pool = ThreadPoolExecutor(workers)
    try:
        for number in numbers:
            running.append((number, pool.submit(program.run, number)))
            if len(running) > 2 * workers:
                number, state = running.popleft()
                yield number, state.result()
        for number, state in running:
            yield number, state.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def on_devices(program: TileProgram, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Run a tile on each device of a mesh at a time, those of other processes of `jax.distributed` included.

    Every process runs the same tiles and gets the states of all.
    """
    from jax.experimental import multihost_utils

    mesh = Mesh(np.array(jax.devices()), ("tile",))
    (trace, arguments), width = program.parts, mesh.size
    compiled = _on_mesh(trace, mesh)

    def run(hint: Any, chunks: Sequence[tuple[int, int]]) -> Any:
        filled = np.zeros((2, width), np.int32)  # a device without a tile runs no chunk
        filled[:, : len(chunks)] = np.transpose(chunks)
        with program.precision():
            inputs = multihost_utils.host_local_array_to_global_array((*arguments, hint), mesh, SAME)
            first, count = (
                jax.make_array_from_callback((width,), NamedSharding(mesh, EACH), lambda index, row=row: row[index])
                for row in filled
            )
            states = multihost_utils.process_allgather(compiled(*inputs, first, count), tiled=True)
            return jax.tree.map(np.asarray, states)

    hint = program.sampled_hint(lambda hint, chunk: jax.tree.map(lambda leaf: leaf[0], run(hint, [(chunk, 1)])))
    for start in range(0, len(numbers), width):
        group = list(numbers[start : start + width])
        states = run(hint, [program.grid.tile(number) for number in group])
        for row, number in enumerate(group):
            yield number, jax.tree.map(lambda leaf, row=row: leaf[row], states)


@cached
def _on_mesh(trace: TileTrace, mesh: Mesh) -> Callable[..., Any]:
    """The program of a tile on each device of a mesh."""

    def tile(arrays: Any, numbers: Any, values: Any, hint: Any, first: Any, count: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[None], trace.run(arrays, numbers, values, hint, first[0], count[0]))

    specs = (*(SAME,) * 4, EACH, EACH)
    mapped = jax.shard_map(tile, mesh=mesh, in_specs=specs, out_specs=EACH, check_vma=False)
    return jax.jit(mapped, compiler_options=compiler_options(once=trace.quick, tile=True))


def from_first_process(tree: Any) -> Any:
    """The arrays of the first process of `jax.distributed`, in all processes."""
    if jax.process_count() == 1:
        return tree
    from jax.experimental import multihost_utils

    return jax.tree.map(np.asarray, multihost_utils.broadcast_one_to_all(tree))


def on_dask(address: str) -> Engine:
    """Run tiles on the workers of a Dask scheduler; a tile whose worker dies runs again on another one.

    **Raises:** `InputError` where Dask is not installed or the scheduler does not answer.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError('engine dask: needs Dask. Install it: pip install "energymodel[dask]".') from None

    def run(program: TileProgram, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        try:
            client = Client(address, timeout=TIMEOUT, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise InputError(f"engine dask: no scheduler answers at {address}: {error}.") from None
        with client:
            import cloudpickle

            scattered = client.scatter(cloudpickle.dumps(program), broadcast=True, hash=True)
            workers = max(1, len(client.scheduler_info()["workers"]))
            size = min(MOST_TOGETHER, max(1, len(numbers) // (QUEUED * workers)))
            groups = iter([numbers[start : start + size] for start in range(0, len(numbers), size)])

            def submit(count: int) -> list[Any]:
                some = islice(groups, count)
                return [client.submit(_on_worker, scattered, group, pure=False, retries=RETRIES) for group in some]

            running = as_completed(submit(QUEUED * workers), loop=client.loop)
            for future in running:
                yield from future.result()
                future.release()
                running.update(submit(1))

    return run


@cache
def _program_on_worker(portable: bytes) -> TileProgram:
    import cloudpickle

    return cloudpickle.loads(portable)


def _on_worker(portable: bytes, numbers: Sequence[int]) -> list[tuple[int, Any]]:
    with _LOCK:
        program = _program_on_worker(portable)
        _ = program.hint
    return [(number, program.run(number)) for number in numbers]


def engine_of(name: str | Engine | None) -> Engine:
    """An engine by its name: `process`, `devices`, `distributed`, or `dask://address`; `None` chooses."""
    if callable(name):
        return name
    if name is None:
        return on_devices if len(jax.devices()) > 1 else in_process
    by_name: dict[str, Engine] = {"process": in_process, "devices": on_devices, "distributed": on_devices}
    if name in by_name:
        return by_name[name]
    scheme, _, address = name.partition("://")
    if scheme == "dask" and address:
        return on_dask(f"tcp://{address}")
    raise InputError(f'engine: unknown "{name}". Choose process, devices, distributed or dask://address.')
