"""The evolution of many plans in time, step by step, without memory traffic between steps."""

from energymodel_kernels.ode_ensemble.api import ode_ensemble
from energymodel_kernels.ode_ensemble.rates import LossPlan, ThermalPlan, heat_rate, loss_rate_of
from energymodel_kernels.ode_ensemble.runs import trajectories

__all__ = ["LossPlan", "ThermalPlan", "heat_rate", "loss_rate_of", "ode_ensemble", "trajectories"]
