"""Share of accepted systems that have an outcome, drawn over the whole ranges of numbers.

Each draw moves some numbers of a scenario, from one to all of them, to any place in their ranges, ends and zeros among
them. What `Scenario.check` refuses is drawn anew. The others are evaluated; `check_outcome` says which outcomes cannot
be, and `evaluate` refuses them with the same message. An outcome that is not finite and not refused is a fault.
"""

import argparse
import collections
import dataclasses
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.ranges import EXTENTS, Range
from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.scenario import Scenario, leaf_paths, load_scenario
from energymodel.system.evaluate import evaluate
from energymodel.system.plausible import check_outcome

SCENARIOS = ("test-1b-h100", "llama-3.1-405b-h100", "deepseek-v3-h800")
BATCH = 250  # systems evaluated together
COUNTS = ("plan.chips", "plan.layout.tensor", "plan.layout.pipeline", "plan.layout.context", "plan.layout.expert")
"""Whole numbers that divide each other: of any place in their ranges hardly one in a million can be run."""


def numbers(component: Any) -> Iterator[tuple[str, Range]]:
    """Unit and range of each number of a component and its parts, in the order of its leaves."""
    for field in dataclasses.fields(component):
        value = getattr(component, field.name)
        if "range" in field.metadata:
            yield field.metadata["unit"], field.metadata["range"]
        elif dataclasses.is_dataclass(value):
            yield from numbers(value)


def drawn_value(draw: np.random.Generator, unit: str, allowed: Range) -> float:
    """Any place in a range: an end, a number of any magnitude, or zero."""
    kind, smallest = draw.random(), max(allowed.low, EXTENTS[unit][0])
    if kind < 0.1:
        return allowed.low
    if kind < 0.2:
        return allowed.high
    if kind < 0.4 or allowed.high <= smallest:
        return float(draw.uniform(allowed.low, allowed.high))
    return min(float(np.exp(draw.uniform(np.log(smallest), np.log(allowed.high)))), allowed.high)


def systems(scenario: Scenario, number: int, draw: np.random.Generator) -> tuple[list[tuple[Any, Any]], int]:
    """So many systems and plans that are accepted, and how many are refused meanwhile."""
    parts = scenario.system, scenario.plan
    paths = leaf_paths(scenario.system, "system") + leaf_paths(scenario.plan, "plan")
    declared = [*numbers(scenario.system), *numbers(scenario.plan)]
    leaves, structure = jax.tree.flatten(parts)
    movable = np.array([index for index, path in enumerate(paths) if path not in COUNTS])
    accepted, refused = [], 0
    while len(accepted) < number:
        some = min(len(movable), int(2.0 ** draw.uniform(0.0, np.log2(len(movable) + 1))))
        moved = list(leaves)
        for index in draw.choice(movable, some, replace=False):
            moved[index] = np.full(np.shape(leaves[index]), drawn_value(draw, *declared[index]))
        system, plan = jax.tree.unflatten(structure, moved)
        try:
            dataclasses.replace(scenario, system=system, plan=plan).check()
        except InputError:
            refused += 1
            continue
        accepted.append((system, plan))
    return accepted, refused


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the outcomes of random systems.")
    parser.add_argument("--number", type=int, default=20_000, help="how many systems, of all scenarios together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", type=int, choices=(32, 64), default=64)
    parser.add_argument("--messages", type=int, default=3, help="how many refusals to print of each kind")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds: collections.Counter[str] = collections.Counter()
    refused, faults, started = 0, 0, time.process_time()
    for name in SCENARIOS:
        scenario = load_scenario(name)
        many = jax.jit(jax.vmap(evaluate), compiler_options=compiler_options())
        draw = np.random.default_rng([arguments.seed, SCENARIOS.index(name)])
        left = -(-arguments.number // len(SCENARIOS))
        while left > 0:
            drawn, more = systems(scenario, BATCH, draw)
            refused, left = refused + more, left - BATCH
            stacked = jax.tree.map(lambda *each: np.stack(each), *drawn)
            with jax.enable_x64(arguments.precision == 64):
                result = jax.device_get(many(*stacked))
            for index, (system, plan) in enumerate(drawn):
                outcome = jax.tree.map(lambda leaf, index=index: leaf[index], result)
                try:
                    check_outcome(system, plan, outcome)
                    kinds["accepted"] += 1
                    faults += not all(np.isfinite(jax.tree.leaves(outcome)))
                except InputError as error:
                    kind = " ".join(str(error).split()[:3]).rstrip(",")
                    kind += " is not finite" if re.search(r" is -?(inf|nan) ", str(error)) else " cannot be"
                    kinds[kind] += 1
                    if kinds[kind] <= arguments.messages:
                        print(f"  {error}")
    drawn_in_all = sum(kinds.values())
    print(f"{drawn_in_all} systems in {time.process_time() - started:.0f} CPU-s; {refused} others refused as input")
    for kind, count in kinds.most_common():
        print(f"{100.0 * count / drawn_in_all:6.2f} %  {kind}")
    print(f"{faults} accepted outcomes are not finite")


if __name__ == "__main__":
    main()
