"""Which points of a huge grid are best, with every point evaluated in registers?"""

from energymodel_kernels.fused_sweep.api import Gradient, Sweep, fused_sweep
from energymodel_kernels.fused_sweep.axes import Axis
from energymodel_kernels.fused_sweep.keep import Best, ParetoBins

__all__ = ["Axis", "Best", "Gradient", "ParetoBins", "Sweep", "fused_sweep"]
