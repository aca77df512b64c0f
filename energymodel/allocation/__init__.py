"""How should work and power be divided: over unlike devices, over pipeline stages, within a site?

`least_energy_split` and `least_time_split` for groups of unlike devices in one synchronous step; `stage_clocks` for the
stages of a pipeline; `most_throughput` and `least_power` for compute, memory, network and cooling under one site limit.
`energymodel.solver` solves them all; the multipliers are the prices of what is divided.
"""

from energymodel.allocation.devices import DeviceGroups, WorkSplit, device_groups, least_energy_split, least_time_split
from energymodel.allocation.pipeline import PipelineLoad, layers_per_stage, pipeline_load
from energymodel.allocation.pipeline_clocks import StageClocks, stage_clocks
from energymodel.allocation.site import SiteLoad, SiteSplit, least_power, most_throughput, site_load
from energymodel.allocation.site_power import DividedPower, divide_site_power

__all__ = [
    "DeviceGroups",
    "DividedPower",
    "PipelineLoad",
    "SiteLoad",
    "SiteSplit",
    "StageClocks",
    "WorkSplit",
    "device_groups",
    "divide_site_power",
    "layers_per_stage",
    "least_energy_split",
    "least_power",
    "least_time_split",
    "most_throughput",
    "pipeline_load",
    "site_load",
    "stage_clocks",
]
