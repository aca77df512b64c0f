"""Where do tiles run: in this process, on many devices, in many processes, on a cluster?

An engine takes the tiles and the numbers to run, and yields numbers with states as they end, in any order. A tile is
the same program everywhere, so the engine does not change a bit of the result.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.engine import Tiles

Engine = Callable[[Tiles, Sequence[int]], Iterator[tuple[int, Any]]]
RETRIES = 5
AHEAD = 4
"""Tiles that a worker of a cluster has waiting, so that it never waits for the scheduler."""
ANSWER = "20s"
"""How long a scheduler may take to answer."""


def threads() -> int:
    """Tiles that run at once in this process: one for each core, or one on an accelerator."""
    return len(os.sched_getaffinity(0)) if jax.default_backend() == "cpu" else 1


def in_process(tiles: Tiles, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Run tiles in threads, one for each core."""
    workers = min(threads(), len(numbers))
    if workers <= 1:
        for number in numbers:
            yield number, tiles.run(number)
        return
    pool = ThreadPoolExecutor(workers)
    waiting: dict[Any, int] = {}
    try:
        for number in numbers:
            waiting[pool.submit(tiles.run, number)] = number
            if len(waiting) > workers:
                yield from _ended(waiting)
        while waiting:
            yield from _ended(waiting)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ended(waiting: dict[Any, int]) -> list[tuple[int, Any]]:
    ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
    return [(waiting.pop(future), future.result()) for future in ended]


def on_devices(tiles: Tiles, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Run a tile on each device of a mesh at a time, those of other processes of `jax.distributed` included.

    Every process runs the same tiles and gets the states of all.
    """
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, PartitionSpec

    devices = np.array(jax.devices())
    mesh = Mesh(devices, ("tile",))
    own = PartitionSpec("tile")
    width = len(devices)
    with jax.enable_x64(tiles.bits == 64):

        def one(arrays: Any, values: Any, first: Any, count: Any) -> Any:
            state = tiles.trace(arrays, values, first[0], count[0])
            return jax.tree.map(lambda leaf: leaf[None], state)

        program = jax.jit(
            jax.shard_map(
                one, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec(), own, own), out_specs=own, check_vma=False
            ),
            compiler_options=tiles.options(),
        )
        replicated = multihost_utils.host_local_array_to_global_array(tiles.arguments(), mesh, PartitionSpec())
    for start in range(0, len(numbers), width):
        group = list(numbers[start : start + width])
        cut = [tiles.grid.tile(number) for number in group] + [(0, 0)] * (width - len(group))
        with jax.enable_x64(tiles.bits == 64):
            first, count = (_sharded(np.array(column, np.int32), mesh, own) for column in zip(*cut, strict=True))
            states = program(*replicated, first, count)
            states = multihost_utils.process_allgather(states, tiled=True)
            states = jax.tree.map(np.asarray, states)
        for place, number in enumerate(group):
            yield number, jax.tree.map(lambda leaf, place=place: leaf[place], states)


def _sharded(column: np.ndarray, mesh: Any, spec: Any) -> Any:
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return jax.make_array_from_callback(column.shape, sharding, lambda index: column[index])


def on_dask(address: str) -> Engine:
    """Run tiles on the workers of a Dask scheduler; a tile whose worker dies runs again on another one.

    **Raises:** `InputError` where Dask is not installed or the scheduler does not answer.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError('engine dask: needs Dask. Install it: pip install "energymodel[dask]".') from None

    def run(tiles: Tiles, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        try:
            client = Client(address, timeout=ANSWER, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise InputError(f"engine dask: no scheduler answers at {address}: {error}.") from None
        with client:
            task = client.scatter(tiles.portable(), broadcast=True, hash=True)
            waiting = iter(numbers)

            def submit(number: int) -> Any:
                return client.submit(_on_worker, task, number, pure=False, retries=RETRIES)

            ahead = AHEAD * max(1, len(client.scheduler_info()["workers"]))
            running = as_completed([submit(number) for number in islice(waiting, ahead)], loop=client.loop)
            for future in running:
                yield future.result()
                future.release()
                for number in islice(waiting, 1):
                    running.add(submit(number))

    return run


@cache
def _tiles_on_worker(portable: bytes) -> Tiles:
    import cloudpickle

    return Tiles(*cloudpickle.loads(portable))


def _on_worker(portable: bytes, number: int) -> tuple[int, Any]:
    return number, _tiles_on_worker(portable).run(number)


def engine_of(word: str | Engine | None) -> Engine:
    """An engine by its word: `process`, `devices`, `distributed`, or `dask://address`; `None` chooses.

    **Raises:** `InputError` for another word.
    """
    if callable(word):
        return word
    if word is None:
        return on_devices if len(jax.devices()) > 1 else in_process
    if word == "process":
        return in_process
    if word in ("devices", "distributed"):
        return on_devices
    scheme, separator, address = word.partition("://")
    if scheme == "dask" and separator and address:
        return on_dask(f"tcp://{address}")
    raise InputError(f'engine: unknown "{word}". Choose process, devices, distributed or dask://address.')
