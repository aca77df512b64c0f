"""The kernel for the tiles of a sweep, as a caller of `energymodel.sweeps` offers it."""

import jax

from energymodel.errors import InputError
from energymodel.sweeps.program_choice import Kernel
from energymodel.sweeps.tile_program import TileProgram

KERNELS = {"gpu": "pallas_triton", "tpu": "pallas_tpu"}
"""The implementation that is offered on each platform; elsewhere a kernel is interpreted."""


def sweep_kernel(program: TileProgram, forced: bool = False) -> Kernel | str:
    """The fused kernel for the tiles of a sweep, or why there is none; an `energymodel.sweeps.program_choice.Offer`.

    **Arguments:**

    - `forced`: use it without comparing it with XLA, and interpreted where the platform has none.

    **Raises:** `InputError` where a forced kernel cannot evaluate the sweep.
    """
    platform = jax.default_backend()
    if platform not in KERNELS and not forced:
        return f"on a {platform.upper()} a kernel is only interpreted"
    try:  # takes a second, which other platforms need not wait for
        from energymodel_kernels.fused_sweep.tile_program import KernelTileProgram, obstacle
    except ImportError as error:
        reason = f"kernels cannot be imported: {error}"
    else:
        reason = obstacle(program)
        if not reason:
            return Kernel(KernelTileProgram.of(program, KERNELS.get(platform, "interpret")), forced)
    if forced:
        raise InputError(f"kernel: {reason}. Leave it out, and XLA evaluates the sweep.")
    return reason
