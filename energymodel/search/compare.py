"""Which accelerator, number format, network and number of chips train a model best, each with its best plan?"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import jax

from energymodel.errors import InputError, suggest
from energymodel.scenarios.question import Limits, Minimize, Ranges
from energymodel.scenarios.scenario import load_scenario
from energymodel.scenarios.topology_choice import topology_changes
from energymodel.search.optimize import optimize
from energymodel.search.result import Optimum
from energymodel.system.evaluate import evaluate_once

PRECISIONS: Mapping[str, Mapping[str, float]] = {
    "bf16": {"fp8": 0.0, "fp4": 0.0},
    "fp8": {"fp8": 1.0, "fp4": 0.0},
    "fp4": {"fp8": 0.0, "fp4": 1.0},
}
"""Shares of the products with weights in each format."""
MOST = 64  # combinations of one comparison


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One combination: what was chosen, its best plan, and why there is none.

    - `accelerator`, `precision`, `network`, `topology`, `chips`: as asked, `None` where the scenario's own stays.
    - `optimum`: of the search; `None` if the combination cannot be stated.
    - `reason`: empty if the plan can be trusted.
    """

    accelerator: str | None
    precision: str | None
    network: str | None
    topology: str | None
    chips: int | float | None
    optimum: Optimum | None
    reason: str

    @property
    def name(self) -> str:
        """The combination in words."""
        chips = None if self.chips is None else f"{self.chips:,.0f} chips"
        return (
            ", ".join(part for part in (self.accelerator, self.precision, self.network, self.topology, chips) if part)
            or "own"
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All combinations, the best first, then those without a plan; `unit` is that of the objective."""

    minimize: str
    unit: str
    limits: Mapping[str, float]
    candidates: tuple[Candidate, ...]

    @property
    def varied(self) -> tuple[str, ...]:
        """Paths of the system that vary in some of them."""
        paths = (path for one in self.candidates if one.optimum for path in one.optimum.varied)
        return tuple(dict.fromkeys(path for path in paths if path.startswith("system.")))


def compare(
    source: str | Path | Mapping[str, Any],
    *,
    accelerators: Sequence[str] = (),
    precisions: Sequence[str] = (),
    networks: Sequence[str] = (),
    topologies: Sequence[str] = (),
    chips: Sequence[int | float] = (),
    changes: Sequence[str] = (),
    cluster: str | Path | None = None,
    minimize: Minimize | None = None,
    limits: Limits | None = None,
    vary: Ranges | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Optimize every combination of accelerators, formats, networks and numbers of chips within the same limits.

    Unless limits are given, all reach the loss of the scenario's own plan on its own hardware, in no more time. Node,
    network and building are those that belong to an accelerator. A combination that cannot be stated or has no plan
    is listed with its reason.

    **Arguments:**

    - `source`, `changes`, `cluster`: as in `load_scenario`.
    - `accelerators`: names of presets; by default the scenario's own.
    - `precisions`: `"bf16"`, `"fp8"`, `"fp4"` of all products with weights; by default the scenario's own shares.
    - `networks`: names of presets of networks between nodes, with their links and protocol.
    - `topologies`: `"fat-tree"`, `"rail-only"`, `"dragonfly"`, `"torus"`, of the switches of the network.
    - `chips`: the most chips of a plan; by default as many as the scenario's own plan has.
    - `minimize`, `limits`, `vary`: as in `optimize`; a combination that lacks a path which varies has no plan.

    **Raises:** `InputError` for a question or a scenario that `optimize` refuses, an unknown format or topology, or
    too many combinations.
    """
    tell = progress or (lambda sentence: None)
    for name in precisions:
        if name not in PRECISIONS:
            raise InputError(f'precision: unknown "{name}". {suggest(name, PRECISIONS)}')
    names = product(*(one or (None,) for one in (accelerators, precisions, networks, topologies)))
    choices = list(product(names, chips or (None,)))
    if len(choices) > MOST:
        raise InputError(f"compare: {len(choices)} combinations are more than {MOST}. Ask for fewer.")
    own = load_scenario(source, changes, cluster).with_question(minimize, limits)
    with jax.enable_x64(True):
        baseline = evaluate_once(own.system, own.plan)
    held = {"loss": float(baseline.loss), "time": float(baseline.time), "chips": float(own.plan.chips)}
    objective = own.optimize.minimize
    held = {name: value for name, value in held.items() if name != objective} | dict(own.optimize.limits)
    for name in topologies:
        topology_changes(name, own.system.network.topology, changes)
    candidates = []
    for (accelerator, precision, network, topology), most in choices:
        shown = Candidate(accelerator, precision, network, topology, most, None, "")
        tell(f"optimizing {shown.name}")
        layers = [*changes]
        if accelerator is not None:
            layers.append(f"system.accelerator={accelerator}")
        if precision is not None:
            layers += [f"plan.layout.{name}={share:g}" for name, share in PRECISIONS[precision].items()]
        if network is not None:
            layers.append(f"system.network={network}")
        within = {**held, **({} if most is None else {"chips": float(most)})}
        candidates.append(_optimized(shown, source, layers, cluster, objective, within, vary))
    ranked = sorted(candidates, key=lambda one: one.optimum.value if one.optimum and not one.reason else float("inf"))
    unit = next((one.optimum.value_unit for one in ranked if one.optimum), "")
    return Comparison(objective, unit, held, tuple(ranked))


def _optimized(
    shown: Candidate,
    source: str | Path | Mapping[str, Any],
    layers: Sequence[str],
    cluster: str | Path | None,
    minimize: str,
    limits: Mapping[str, float],
    vary: Ranges | None,
) -> Candidate:
    """A combination with its best plan, or with the reason why there is none."""
    try:
        scenario = load_scenario(source, layers, cluster)
        if shown.topology is not None:
            layers = [*layers, *topology_changes(shown.topology, scenario.system.network.topology, layers)]
            scenario = load_scenario(source, layers, cluster)
        optimum = optimize(scenario, minimize=minimize, limits=limits, vary=vary)
    except InputError as error:
        return dataclasses.replace(shown, reason=str(error))
    return dataclasses.replace(shown, optimum=optimum, reason="" if optimum.success else optimum.message)
