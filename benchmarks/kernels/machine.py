"""Limits of a GPU in the units that bound these kernels."""

import subprocess
from typing import NamedTuple

import jax


class Chip(NamedTuple):
    """Name, multiprocessors [1] and highest clock [Hz] of a GPU; four warps of 32 threads issue per clock."""

    name: str
    multiprocessors: int
    clock: float

    @property
    def issue(self) -> float:
        """Instructions of single threads [1/s]."""
        return self.multiprocessors * 4 * 32 * self.clock

    @property
    def special(self) -> float:
        """Exponentials, logarithms and reciprocals by the special function units [1/s], 16 per clock."""
        return self.multiprocessors * 16 * self.clock


H200 = Chip("NVIDIA H200 (datasheet)", 132, 1.98e9)


def present() -> Chip | None:
    """The GPU of this machine, if JAX uses one."""
    if jax.default_backend() != "gpu":
        return None
    device = jax.devices()[0]
    query = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    clock = float(subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0])
    return Chip(device.device_kind, int(device.core_count), 1e6 * clock)
