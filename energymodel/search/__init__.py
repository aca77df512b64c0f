"""The best plan, and what each constraint is worth: plans, layouts, fleets, model shapes and chips.

`optimize`, `pareto`, `compare`, `frontier`, `replan` and `calendar` search plans; `optimize_fleet` groups of unlike
devices in one synchronous step; `stage_clocks` the stages of a pipeline; `most_throughput` and `least_power` divide a
site's power; `optimize_architecture` finds the shape of a transformer. `energymodel.solver` solves them all; the
multipliers are the prices of the constraints.
"""
