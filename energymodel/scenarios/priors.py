"""Uncertain numbers of a scenario: their distributions, and those that are priors."""

from collections.abc import Mapping, Sequence

from energymodel.scenarios.distributions import NumberDistribution, distribution_of
from energymodel.scenarios.scenario import Scenario

SYSTEM = "system."
GATED = tuple(f"system.accelerator.gate.{name}" for name in ("residual_fraction", "wake_energy", "wake_time"))
UNFUSED = ("system.software.score_passes",)
FUSED = tuple(
    f"system.accelerator.attention_{name}" for name in ("efficiency", "half_keys", "tail", "half_head", "backward")
)
SPARSE = ("system.software.expert_overlap", "system.mixture_exponent")


def distributions(scenario: Scenario, values: Mapping[str, float]) -> dict[str, NumberDistribution]:
    """The distribution of each number of a scenario that has one; `values` in SI, both by dotted path.

    **Raises:** `InputError` for the first that cannot be read.
    """
    return {
        path: distribution_of(scenario, path, text, scenario.provenance[path].unit, values[path])
        for path, text in scenario.uncertainty.items()
    }


def priors(scenario: Scenario) -> Sequence[str]:
    """Paths of the numbers of the system that are recalled or assumed and that this scenario reads.

    Not those of `switched_off`, which no plan of the scenario can bring into play.
    """
    off = switched_off(scenario)
    assumed = [path for path, origin in scenario.provenance.items() if path.startswith(SYSTEM) and origin.is_prior]
    return [path for path in assumed if path not in off]


def switched_off(scenario: Scenario) -> Sequence[str]:
    """Paths of priors without effect on the scenario: of power gates, attention and experts that it has not."""
    gate, workload = scenario.system.accelerator.gate, scenario.system.workload
    cases = (
        (GATED, float(gate.fraction) == 0.0),
        (UNFUSED, float(workload.flash) == 1.0),
        (FUSED, float(workload.flash) == 0.0),
        (SPARSE, float(workload.experts) == 1.0),
    )
    off = [path for paths, unused in cases if unused for path in paths]
    return [path for path in off if path in scenario.provenance and scenario.provenance[path].is_prior]
