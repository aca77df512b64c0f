"""Parallel layouts that can be chosen on a page, field by field, and the runnable one that is nearest to a choice."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from energymodel.search.layouts import FIELDS, ZERO, candidates
from energymodel.search.training_run import TrainingRun

_OWN = "as in the scenario"
_WHOLE = 1e-6
_ELSEWHERE = 10.0  # a switch that differs counts as much as a degree that is so many times another


class LayoutField(NamedTuple):
    """A field of the page: its label, the fields of a layout that it sets, and what its names mean, if not numbers."""

    label: str
    sets: tuple[str, ...]
    meanings: Mapping[str, tuple[float, ...]] = {}

    @property
    def columns(self) -> list[int]:
        """Where its numbers are in a layout."""
        return [FIELDS.index(name) for name in self.sets]

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """What a name sets; None where it leaves the numbers as they are."""
        return self.meanings.get(name) if self.meanings else (_degree(name) or 1.0,)

    def name(self, numbers: Sequence[float] | np.ndarray) -> str:
        """The name for its numbers."""
        if not self.meanings:
            return f"{numbers[0]:g}"
        return next((name for name, meaning in self.meanings.items() if meaning == tuple(numbers)), _OWN)

    def has(self, name: str) -> bool:
        """Whether it can have a name; which software runs it is another question."""
        return name in (*self.meanings, _OWN) if self.meanings else _degree(name) >= 1.0


LAYOUT_FIELDS: Mapping[str, LayoutField] = {
    "tensor": LayoutField("Tensor parallel", ("tensor",)),
    "pipeline": LayoutField("Pipeline parallel", ("pipeline",)),
    "virtual_stages": LayoutField("Virtual stages", ("virtual_stages",)),
    "context": LayoutField("Context parallel", ("context",)),
    "expert": LayoutField("Expert parallel", ("expert",)),
    "microbatch": LayoutField("Sequences per micro-batch", ("microbatch",)),
    "zero": LayoutField(
        "ZeRO stage",
        ("shard_optimizer", "shard_gradients", "shard_parameters"),
        {str(stage): switches for stage, switches in ZERO.items()},
    ),
    "recomputation": LayoutField(
        "Recomputation",
        ("recompute_attention", "recompute_full"),
        {"none": (0.0, 0.0), "selective": (1.0, 0.0), "full": (0.0, 1.0)},
    ),
    "fp8": LayoutField("Products in fp8", ("fp8",), {"0 %": (0.0,), "100 %": (1.0,)}),
}
"""Fields of the layout on the page, by name."""


class Choice(NamedTuple):
    """A field of the layout with its possible names on the chips of the plan, each with whether it is chosen."""

    field: str
    label: str
    options: tuple[tuple[str, bool], ...]


class LayoutChoice:
    """The layouts that a software runs, as rows of a table whose columns are the fields of a `ParallelLayout`."""

    def __init__(self, run: TrainingRun, most_chips: float) -> None:
        lattice = candidates(run, most_chips)
        self.own = np.array([float(getattr(run.plan.layout, name)) for name in FIELDS])
        self._table = np.stack([getattr(lattice, name) for name in FIELDS], axis=1)
        has_fp8 = float(run.system.accelerator.peak_flops_fp8) > 0.0
        self.fields = {name: field for name, field in LAYOUT_FIELDS.items() if has_fp8 or name != "fp8"}
        self.choices = functools.lru_cache(self._choices)  # most sliders leave them as they are

    def _dividing(self, chips: float) -> Bool[np.ndarray, " layouts"]:
        """Layouts of whole replicas on so many chips, over which the experts divide."""
        names = ("tensor", "pipeline", "context", "expert")
        tensor, pipeline, context, expert = (self._table[:, FIELDS.index(name)] for name in names)
        data = chips / (tensor * pipeline * context)
        spread = data * context / expert
        return (np.abs(data - np.round(data)) < _WHOLE) & (np.abs(spread - np.round(spread)) < _WHOLE) & (data >= 1.0)

    def names(self, row: Float[np.ndarray, " fields"]) -> dict[str, str]:
        """The choice that a layout is, by field of the page."""
        return {name: field.name(row[field.columns]) for name, field in self.fields.items()}

    def nearest(
        self, names: Mapping[str, str], chips: float, moved: str = ""
    ) -> tuple[Float[np.ndarray, " fields"], bool]:
        """The layout that is as chosen, or else the nearest one that the software runs.

        **Arguments:**

        - `names`: the choice by field of the page; the scenario's own where a field is missing.
        - `moved`: the field that was just changed: it keeps its value, and the others follow the chips. Where no field
          was changed, the chips have to follow the layout.

        **Returns:** the layout, and whether it divides the chips.
        """
        wanted = self.own.copy()
        for name in names.keys() & self.fields.keys():
            field = self.fields[name]
            wanted[field.columns] = field.numbers(names[name]) or wanted[field.columns]
        ruled = {name: field for name, field in LAYOUT_FIELDS.items() if name != "fp8"}  # which every layout can have
        away = np.zeros(len(self._table))
        for field in ruled.values():
            rows, values = self._table[:, field.columns], wanted[field.columns]
            away += (
                np.log(_ELSEWHERE) * np.abs(rows - values) if field.meanings else np.abs(np.log(rows / values))
            ).sum(axis=1)
        divides = self._dividing(chips)
        if moved in ruled:
            columns = ruled[moved].columns
            same = np.all(self._table[:, columns] == wanted[columns], axis=1)
            allowed = next((rows for rows in (same & divides, same, divides) if rows.any()), None)
            away = away if allowed is None else np.where(allowed, away, np.inf)
        best = int(np.argmin(away))
        row = self._table[best].copy()
        row[FIELDS.index("fp8")] = wanted[FIELDS.index("fp8")]
        return row, bool(divides[best])

    def _choices(self, row: tuple[float, ...], chips: float) -> list[Choice]:
        """What each field of the page can be on so many chips; a degree with one value is left out."""
        table, choices = self._table[self._dividing(chips)], []
        for name, field in self.fields.items():
            chosen = field.name([row[column] for column in field.columns])
            names = {chosen, *map(field.name, set(map(tuple, table[:, field.columns].tolist())))}
            names |= set(field.meanings) if name == "fp8" else set()
            ordered = [option for option in (*field.meanings, _OWN) if option in names]
            ordered = ordered if field.meanings else sorted(names, key=float)
            if field.meanings or len(names) > 1:
                choices.append(Choice(name, field.label, tuple((option, option == chosen) for option in ordered)))
        return choices


def _degree(name: str) -> float:
    """A number, or nothing where a text is none."""
    try:
        value = float(name)
    except ValueError:
        return 0.0
    return value if np.isfinite(value) else 0.0
