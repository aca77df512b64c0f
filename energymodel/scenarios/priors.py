"""Which numbers of a scenario are priors, and which of them belong to parts that are switched off?"""

from collections.abc import Sequence

from energymodel.scenarios.scenario import Scenario

SYSTEM = "system."
GATED = ("system.accelerator.gate.residual_fraction", "system.accelerator.gate.wake_energy")
GATED += ("system.accelerator.gate.wake_time",)
UNFUSED = ("system.software.score_passes",)
FUSED = ("system.accelerator.attention_efficiency", "system.accelerator.attention_half_keys")
FUSED += ("system.accelerator.attention_tail", "system.accelerator.attention_half_head")
FUSED += ("system.accelerator.attention_backward",)
SPARSE = ("system.software.expert_overlap", "system.mixture_exponent")


def priors(scenario: Scenario) -> Sequence[str]:
    """Paths of the numbers of the system that are recalled or assumed and that this scenario reads.

    Not those of `switched_off`, which no plan of the scenario can bring into play.
    """
    off = switched_off(scenario)
    found = [path for path, origin in scenario.provenance.items() if path.startswith(SYSTEM) and origin.is_prior]
    return [path for path in found if path not in off]


def switched_off(scenario: Scenario) -> Sequence[str]:
    """Paths of priors without effect on the scenario: of power gates, attention and experts that it has not."""
    system = scenario.system
    off: tuple[str, ...] = ()
    if float(system.accelerator.gate.fraction) == 0.0:
        off += GATED
    if float(system.workload.flash) == 1.0:
        off += UNFUSED
    if float(system.workload.flash) == 0.0:
        off += FUSED
    if float(system.workload.experts) == 1.0:
        off += SPARSE
    return [path for path in off if path in scenario.provenance and scenario.provenance[path].is_prior]
