"""Layouts of a search: those that fit in memory at their best, and lanes of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.layers import recomputation_words
from energymodel.search.problem import DesignProblem
from energymodel.search.training_run import TrainingRun
from energymodel.system.division import divide
from energymodel.system.layouts import ACT_ON, SWITCHES, Lattice, candidates
from energymodel.system.memory import chip_memory
from energymodel.system.outputs import OUTPUTS
from energymodel.system.plan import RECOMPUTED, ParallelLayout
from energymodel.system.plan_rules import CUTS, SCHEDULE_NAMES
from energymodel.units import format_quantity

_LAYOUT = {"tensor": "t", "pipeline": "p", "virtual_stages": "v", "context": "c", "expert": "e", "microbatch": "b"}
_WORDS = {**SCHEDULE_NAMES, "context_all_to_all": "all-to-all", "cuda_graphs": "graphs"}


def take(lanes: Any, index: Any) -> Any:
    """Some of the lanes of layouts or anything else with a leading axis; one without that axis, at a single index."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], lanes)


def concatenate(*lanes: Any) -> Any:
    """Lanes of several searches, one after the other."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *lanes)


def layout_label(layout: ParallelLayout) -> str:
    """A layout in one word, such as t4·p8·v16·z3·fp8·async, with ZeRO 2 or 3, recomputation and switches that act."""
    degrees = [f"{short}{float(getattr(layout, name)):g}" for name, short in _LAYOUT.items()]
    degrees = [word for word in degrees if word[1:] != "1" or word[0] in "tp"]
    if float(layout.shard_parameters) or float(layout.shard_gradients):
        degrees.append("z3" if float(layout.shard_parameters) else "z2")
    if (word := recomputation_words(layout)) != "none":
        degrees.append(word)
    unnamed = {*CUTS, *RECOMPUTED}
    acting = [name for name in SWITCHES if name not in unnamed and float(getattr(layout, name)) > 0.0]
    acting = [name for name in acting if name not in ACT_ON or float(getattr(layout, ACT_ON[name])) > 1.0]
    return "·".join([*degrees, *dict.fromkeys(_WORDS.get(name, name.partition("_")[0]) for name in acting)])


def chips_per_replica(layout: Lattice) -> np.ndarray:
    """Fewest chips of a layout: a model replica, or as many replicas as the experts divide over."""
    expert = np.maximum(np.asarray(layout.context), np.asarray(layout.expert))
    return np.asarray(layout.tensor) * np.asarray(layout.pipeline) * expert


def fitting_layouts(problem: DesignProblem) -> tuple[Lattice, int]:
    """Layouts that fit in memory, and how many were considered.

    **Raises:** `InputError` if none fits.
    """
    system, own = problem.run.system, problem.run.plan.layout
    lattice = candidates(system, own, problem.most_chips, problem.layout_ranges)
    fitting = np.flatnonzero(fits(problem, lattice, problem.most_chips))
    if not len(fitting):
        memory, chips = (format_quantity(problem.limits[name], OUTPUTS[name]) for name in ("memory", "chips"))
        raise InputError(
            f"The model does not fit in {memory} per chip in any layout of {chips} chips. Allow more chips "
            "(--limit chips=...), more memory, or offload states (plan.layout.offload_optimizer=1)."
        )
    return take(lattice, fitting), len(lattice.tensor)


def fits(problem: DesignProblem, lattice: Lattice, chips: float) -> Bool[np.ndarray, " layouts"]:
    """Which layouts fit in memory at their best: all the chips, the fewest micro-batches."""
    return np.asarray(_smallest_memory(problem.run, lattice, chips)) <= problem.limits["memory"]


@Compiled
def _smallest_memory(run: TrainingRun, lattice: Lattice, chips: Numeric) -> Float[Array, " layouts"]:
    def smallest(layout: ParallelLayout) -> Array:
        group = layout.tensor * layout.pipeline * layout.context
        used = jnp.maximum(1.0, jnp.floor(chips / group)) * group
        batch = layout.smallest_batch(used, run.system.workload.sequence)
        plan = eqx.tree_at(lambda plan: (plan.chips, plan.layout), run.plan, (used, layout))
        return chip_memory(run.system, plan, divide(run.system, plan, batch)).total

    return jax.vmap(smallest)(lattice)
