"""How should work and power be divided: over unlike devices, over pipeline stages, within a site?

`load_fleet` and `optimize_fleet` for groups of unlike devices in one synchronous step; `stage_clocks` for the stages of
a pipeline; `most_throughput` and `least_power` for compute, memory, network and cooling under one site limit.
`energymodel.solver` solves them all; the multipliers are the prices of what is divided.
"""

from energymodel.allocation.fleet import Fleet, load_fleet
from energymodel.allocation.fleet_search import FleetOptimum, optimize_fleet
from energymodel.allocation.pipeline import PipelineLoad, layers_per_stage, pipeline_load
from energymodel.allocation.pipeline_clocks import StageClocks, stage_clocks
from energymodel.allocation.site import SiteLoad, SiteSplit, least_power, most_throughput, site_load
from energymodel.allocation.site_power import DividedPower, divide_site_power

__all__ = [
    "DividedPower",
    "Fleet",
    "FleetOptimum",
    "PipelineLoad",
    "SiteLoad",
    "SiteSplit",
    "StageClocks",
    "divide_site_power",
    "layers_per_stage",
    "least_power",
    "load_fleet",
    "most_throughput",
    "optimize_fleet",
    "pipeline_load",
    "site_load",
    "stage_clocks",
]
