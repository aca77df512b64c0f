"""The plans of a scenario as a black box for searches without gradients: genes in, outputs and excess out."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layouts import fitting_layouts, take
from energymodel.search.problem import DesignProblem, formulate
from energymodel.search.relaxation import layout_bounds
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import Lattice

NOT_A_LAYOUT = 10.0  # excess of genes that describe no layout that fits


class BlackBox(NamedTuple):
    """Coordinates of the variables first, each on [0, 1], then the place of each field of the layout in its values."""

    problem: DesignProblem
    lattice: Lattice
    places: dict[tuple[float, ...], int]
    values: tuple[np.ndarray, ...]
    function: object

    @staticmethod
    def of(scenario: Scenario, free: Sequence[str] = (), limits: dict[str, float] | None = None) -> "BlackBox":
        """The problem that `optimize` solves, or `pareto` for the outputs in `free`."""
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        problem = formulate(scenario.with_question("energy", limits), baseline, free=free)
        lattice, _ = fitting_layouts(problem)
        table = np.stack([np.asarray(leaf) for leaf in jax.tree.leaves(lattice)], axis=1)
        values = tuple(np.unique(column) for column in table.T)
        places = {tuple(row): index for index, row in enumerate(table.tolist())}
        function = jax.jit(
            jax.vmap(problem.formulation.values, in_axes=(0, 0, None, None)), compiler_options=compiler_options()
        )
        return BlackBox(problem, lattice, places, values, function)

    @property
    def continuous(self) -> int:
        """Number of variables besides the layout."""
        return len(self.problem.formulation.paths)

    @property
    def choices(self) -> list[int]:
        """Number of values of each field of the layout that takes more than one."""
        return [len(values) for values in self.values if len(values) > 1]

    def evaluate(self, genes: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Logarithm of each row's output, and the sum of the excesses of limits, for each line of genes."""
        places = self.layouts(genes[:, self.continuous :])
        inside = np.maximum(places, 0)
        layouts = take(self.lattice, inside)
        least, most = layout_bounds(self.problem, layouts)
        points = least + genes[:, : self.continuous] * (most - least)
        values = self.function(points, layouts, self.problem.criteria, self.problem.run)  # pyright: ignore[reportCallIssue]
        rows = np.asarray(values.inequalities)
        excess = np.sum(np.maximum(rows, 0.0), axis=1) + np.where(places < 0, NOT_A_LAYOUT, 0.0)
        limits = self.problem.criteria.limits
        outputs = {name: rows[:, row] + np.log(limits[name]) for row, name in enumerate(self.problem.formulation.rows)}
        return outputs, np.where(np.isfinite(excess), excess, NOT_A_LAYOUT)

    def energy(self, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithm of the energy and the excess, for each line of genes."""
        outputs, excess = self.evaluate(genes)
        return outputs["energy"], excess

    def genes_of(self, layouts: Lattice) -> np.ndarray:
        """Genes of layouts."""
        columns = zip(jax.tree.leaves(layouts), self.values, strict=True)
        return np.stack([np.searchsorted(values, leaf) for leaf, values in columns if len(values) > 1], axis=1)

    def layouts(self, genes: np.ndarray) -> np.ndarray:
        """Place of each layout in the lattice, or -1 where the genes describe none."""
        columns, gene = [], 0
        for values in self.values:
            if len(values) > 1:
                columns.append(values[np.clip(np.round(genes[:, gene]), 0, len(values) - 1).astype(int)])
                gene += 1
            else:
                columns.append(np.full(len(genes), values[0]))
        return np.array([self.places.get(tuple(row), -1) for row in np.stack(columns, axis=1).tolist()])
