"""The best plan, and what each constraint is worth: plans, layouts, fleets, model shapes and chips.

`optimize`, `pareto`, `compare`, `frontier`, `replan` and `calendar` search plans; `optimize_fleet` groups of unlike
devices in one synchronous step; `stage_clocks` the stages of a pipeline; `most_throughput` and `least_power` divide a
site's power; `optimize_architecture` finds the shape of a transformer. `energymodel.solver` solves them all; the
multipliers are the prices of the constraints.
"""

from energymodel.search.architecture import optimize_architecture
from energymodel.search.fleet import Fleet, FleetOptimum, load_fleet, optimize_fleet
from energymodel.search.pipeline_clocks import PipelineLoad, StageClocks, pipeline_load, stage_clocks
from energymodel.search.site import SiteLoad, SiteSplit, divide_site_power, least_power, most_throughput, site_load
from energymodel.system.timeline import layers_per_stage

__all__ = [
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
    "optimize_architecture",
    "optimize_fleet",
    "pipeline_load",
    "site_load",
    "stage_clocks",
]
