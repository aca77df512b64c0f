"""Kernels in JAX of a size that suits the device, and their time, power and clock when they run by themselves."""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from energymodel.readers.log_records import PowerReading

SHORTEST = 5e-3  # of the largest kernel, and of the calls that are timed together [s]
FEWEST, MOST = 5, 1000  # times of these
CHAIN, SMALL = 64, 16  # products that wait for each other in one program, and their edge
DTYPES = {"bf16": jnp.bfloat16, "fp32": jnp.float32, "fp8": jnp.float8_e4m3fn}
HALVED = ((0, 0, 0), (1, 1, 1), (2, 2, 2), (0, 0, 3), (0, 3, 0), (3, 0, 0), (1, 0, 2), (0, 2, 1), (2, 1, 0))
"""Products: how often each edge of the largest is halved."""
ATTENDED = ((1, 8, 0, 128), (1, 8, 1, 128), (4, 8, 2, 128), (1, 4, 1, 128), (1, 8, 2, 64))
"""Attention: batch, heads, how often the longest sequence is halved, and head size."""
BUFFERS = (1 << 14, 1 << 18, 1 << 22, 1 << 26)  # of collectives [B]

Row = dict[str, Any]
Reader = Callable[[], PowerReading]


def _normal(*shape: int, of: Any = jnp.bfloat16) -> jax.Array:
    """Random numbers: constants would switch few bits, and draw less power."""
    return jax.random.normal(jax.random.key(0), shape, jnp.float32).astype(of)


def program(row: Row, fused: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What computes the kernel of a row of kind `kernels`, and its arguments; attention is `fused` by cuDNN."""
    if row["kernel"] == "product":
        of, is_wide = DTYPES[row["precision"]], row["precision"] == "fp32"
        how = {"precision": jax.lax.Precision.HIGHEST} if is_wide else {"preferred_element_type": jnp.bfloat16}
        return partial(jnp.matmul, **how), (_normal(row["m"], row["k"], of=of), _normal(row["k"], row["n"], of=of))
    if row["kernel"].startswith("attention"):
        run = partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn" if fused else "xla")

        def both(*arguments: jax.Array) -> Any:
            result, backward = jax.vjp(run, *arguments)
            return result, backward(result)

        shape = (row["batch"], row["sequence_length"], row["heads"], row["head_size"])
        return run if row["kernel"] == "attention" else both, (_normal(*shape),) * 3
    if row["kernel"] == "elementwise":
        return lambda x, y: x + y, (_normal(row["size_b"] // 6), _normal(row["size_b"] // 6))
    if row["kernel"] == "launch":
        return lambda x, y: jax.lax.fori_loop(0, CHAIN, lambda _, x: x @ y, x, unroll=CHAIN), (
            _normal(SMALL, SMALL),
        ) * 2
    mesh, own = Mesh(np.array(jax.local_devices()[: row["ranks"]]), "chips"), PartitionSpec("chips")
    summed = jax.shard_map(lambda x: jax.lax.psum(x, "chips"), mesh=mesh, in_specs=own, out_specs=PartitionSpec())
    buffers = np.ones((row["ranks"], row["size_b"] // 4), np.float32)
    return summed, (jax.device_put(buffers, NamedSharding(mesh, own)),)


def timed(row: Row, seconds: float, read: Reader | None = None, *, fused: bool = False) -> Row:
    """The row with the median time, the ends of 90 % of its repetitions, and power, clock and temperature.

    The kernel runs for so long [s], after it was compiled and warmed up. Where a queue of the device keeps the order of
    calls, they do not wait for each other, so that a launch hides behind the kernel before.
    """
    function, arguments = program(row, fused)
    run = jax.jit(function).lower(*arguments).compile()
    in_order = jax.local_devices()[0].platform != "cpu"

    def together(count: int) -> float:
        begin = time.perf_counter()
        for index in range(count):
            result = run(*arguments)
            if not in_order or index == count - 1:
                jax.block_until_ready(result)
        return time.perf_counter() - begin

    together(1)
    count = 1
    while together(count) < SHORTEST:
        count *= 2
    first, times, begin = read and read(), list[float](), time.perf_counter()
    while len(times) < FEWEST or (time.perf_counter() - begin < seconds and len(times) < MOST):
        times.append(together(count) / (count * (CHAIN if row["kernel"] == "launch" else 1)))
    middle, low, high = np.quantile(times, (0.5, 0.05, 0.95)).tolist()
    metered = of_meter(first, read()) if first and read else {}
    return {**row, "time_s": middle, "time_low_s": low, "time_high_s": high, **metered}


def of_meter(first: PowerReading, last: PowerReading) -> Row:
    """Mean power between two readings, and clock and temperature of the later one, as far as they were read."""
    power = 0.5 * (first.power + last.power)
    if last.energy > first.energy:
        power = (last.energy - first.energy) / (last.time - first.time)
    values = {"power_w": power, "clock_hz": last.clock, "temperature_k": last.temperature}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _large(row: Row, names: tuple[str, ...], first: int, most: int, fused: bool = False) -> int:
    """A size, doubled some times, of the columns of a kernel that takes as long as can be timed well."""
    size = first
    while size < most:
        own = timed({**row, **dict.fromkeys(names, size)}, 0.0, fused=fused)["time_low_s"]
        if own >= SHORTEST:
            break
        size <<= max(1, math.ceil(math.log2(SHORTEST / own) / max(2, len(names))))
    return min(size, most)


def kernel_rows(formats: tuple[str, ...], fused: bool) -> Iterator[Row]:
    """Kernels for the devices: products by format and shape, attention, passes over the memory, all-reduces."""
    row: Row = {"kernel": "product", "precision": "bf16"}
    edge = _large(row, ("m", "n", "k"), 256, 1 << 14)
    for precision in formats:
        for halved in HALVED[:2] if precision == "fp32" else HALVED:
            yield {**row, "precision": precision, **dict(zip("mnk", (edge >> times for times in halved), strict=True))}
    row = {"kernel": "attention", "batch": 1, "heads": 8, "head_size": 128}
    longest = _large(row, ("sequence_length",), 256, 1 << 14, fused)
    for batch, heads, times, head in ATTENDED:
        shape = {"batch": batch, "heads": heads, "sequence_length": longest >> times, "head_size": head}
        yield from ({"kernel": kernel, **shape} for kernel in ("attention", "attention-training"))
    size = _large({"kernel": "elementwise"}, ("size_b",), 3 << 25, 3 << 31)
    yield from ({"kernel": "elementwise", "size_b": size >> times} for times in range(3))
    yield {"kernel": "launch"}
    for exponent in range(1, jax.local_device_count().bit_length()):
        yield from ({"kernel": "all-reduce", "ranks": 1 << exponent, "size_b": buffer} for buffer in BUFFERS)
