"""The best points of a huge grid, every point evaluated in registers."""

from energymodel_kernels.fused_sweep.api import Gradient, Sweep, fused_sweep
from energymodel_kernels.fused_sweep.keep import Best, ParetoBins
from energymodel_kernels.fused_sweep.scan_axes import Axis

__all__ = ["Axis", "Best", "Gradient", "ParetoBins", "Sweep", "fused_sweep"]
