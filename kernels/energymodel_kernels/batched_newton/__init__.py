"""One Newton step of thousands of small constrained problems towards their optimum."""

from energymodel_kernels.batched_newton.api import batched_newton
from energymodel_kernels.batched_newton.system import Step, System

__all__ = ["Step", "System", "batched_newton"]
