"""Which parallel layouts can be chosen on a page, field by field, and which runnable one is nearest to a choice?"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from energymodel.search.layouts import FIELDS, ZERO, candidates
from energymodel.search.training_run import TrainingRun

DEGREES: Mapping[str, str] = {
    "tensor": "Tensor parallel",
    "pipeline": "Pipeline parallel",
    "virtual_stages": "Virtual stages",
    "context": "Context parallel",
    "expert": "Expert parallel",
    "microbatch": "Sequences per micro-batch",
}
SHARDING, RECOMPUTATION, FORMAT = "zero", "recomputation", "fp8"
SHARDED = ("shard_optimizer", "shard_gradients", "shard_parameters")
RECOMPUTED = ("recompute_attention", "recompute_full")
_RECOMPUTATIONS = {"none": (0.0, 0.0), "selective": (1.0, 0.0), "full": (0.0, 1.0)}
_OWN = "as in the scenario"
WHOLE = 1e-6
_ELSEWHERE = 10.0  # a field that is no degree counts as much as a degree that is so many times another


class Option(NamedTuple):
    """A value that a field can have: its name on the page, and whether it is chosen."""

    name: str
    chosen: bool


class Choice(NamedTuple):
    """A field of the layout with what it can be on the chips of the plan."""

    field: str
    label: str
    options: tuple[Option, ...]


def is_name(field: str, name: str) -> bool:
    """Whether a field of the page can have such a name; which software runs it is another question."""
    if field in DEGREES:
        return _number(name, 0.0) >= 1.0
    if field == FORMAT:
        return name.endswith(" %") and _number(name.removesuffix(" %"), math.inf) <= 100.0
    return name == _OWN or name in (_RECOMPUTATIONS if field == RECOMPUTATION else map(str, ZERO))


class LayoutChoice:
    """The layouts that a software runs, as rows of a table.

    A chosen layout is a row; its fields are named as in a `ParallelLayout`.
    """

    def __init__(self, run: TrainingRun, most_chips: float) -> None:
        lattice = candidates(run, most_chips)
        self.own = np.array([float(getattr(run.plan.layout, name)) for name in FIELDS])
        self._table = np.stack([getattr(lattice, name) for name in FIELDS], axis=1)
        self._group = self._column("tensor") * self._column("pipeline") * self._column("context")
        self._last: tuple[tuple[float, bytes], list[Choice]] | None = None
        self._has_fp8 = float(run.system.accelerator.peak_flops_fp8) > 0.0

    def _column(self, name: str) -> Float[np.ndarray, " layouts"]:
        return self._table[:, FIELDS.index(name)]

    def _dividing(self, chips: float) -> Bool[np.ndarray, " layouts"]:
        """Layouts of whole replicas on so many chips, over which the experts divide."""
        data = chips / self._group
        spread = data * self._column("context") / self._column("expert")
        return (np.abs(data - np.round(data)) < WHOLE) & (np.abs(spread - np.round(spread)) < WHOLE) & (data >= 1.0)

    def names(self, row: Float[np.ndarray, " fields"]) -> dict[str, str]:
        """The choice that a layout is, by field of the page."""
        value = dict(zip(FIELDS, map(float, row), strict=True))
        sharded, recomputed = (tuple(value[name] for name in names) for names in (SHARDED, RECOMPUTED))
        stage = next((str(stage) for stage, switches in ZERO.items() if switches == sharded), _OWN)
        repeated = next((name for name, switches in _RECOMPUTATIONS.items() if switches == recomputed), _OWN)
        found = {name: f"{value[name]:g}" for name in DEGREES} | {SHARDING: stage, RECOMPUTATION: repeated}
        return found | ({FORMAT: f"{100.0 * value['fp8']:g} %"} if self._has_fp8 else {})

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
        asked = self.own.copy()
        for name in DEGREES:
            asked[FIELDS.index(name)] = _number(names.get(name), asked[FIELDS.index(name)])
        for field, switches, known in (
            (SHARDING, SHARDED, {str(stage): one for stage, one in ZERO.items()}),
            (RECOMPUTATION, RECOMPUTED, _RECOMPUTATIONS),
        ):
            for name, value in zip(switches, known.get(names.get(field, ""), ()), strict=False):
                asked[FIELDS.index(name)] = value
        format_ = _number((names.get(FORMAT) or "").removesuffix(" %"), 100.0 * self.own[FIELDS.index("fp8")]) / 100.0
        row, divides = self._nearest_row(asked, chips, moved)
        row[FIELDS.index("fp8")] = min(max(format_, 0.0), 1.0) if self._has_fp8 else row[FIELDS.index("fp8")]
        return row, divides

    def _nearest_row(self, asked: np.ndarray, chips: float, moved: str) -> tuple[np.ndarray, bool]:
        places = [FIELDS.index(name) for name in DEGREES]
        away = np.abs(np.log(self._table[:, places] / asked[places])).sum(axis=1)
        for switches in (SHARDED, RECOMPUTED):
            at = [FIELDS.index(name) for name in switches]
            away += np.log(_ELSEWHERE) * np.abs(self._table[:, at] - asked[at]).sum(axis=1)
        kept = {SHARDING: SHARDED, RECOMPUTATION: RECOMPUTED}.get(moved, (moved,) if moved in DEGREES else ())
        fixed = [FIELDS.index(name) for name in kept]
        as_moved = np.all(self._table[:, fixed] == asked[fixed], axis=1)
        if not as_moved.any():
            as_moved[:] = True
        divides = self._dividing(chips)
        usable = as_moved & divides if kept and (as_moved & divides).any() else as_moved
        best = int(np.argmin(np.where(usable, away, np.inf)))
        return self._table[best].copy(), bool(divides[best])

    def choices(self, row: Float[np.ndarray, " fields"], chips: float) -> list[Choice]:
        """What each field of the page can be on so many chips, with what is chosen."""
        key = (chips, row.tobytes())
        if self._last is None or self._last[0] != key:  # most sliders leave it as it is
            self._last = (key, self._choices(row, chips))
        return self._last[1]

    def _choices(self, row: np.ndarray, chips: float) -> list[Choice]:
        table, chosen = self._table[self._dividing(chips)], self.names(row)
        found = []
        for name, label in DEGREES.items():
            values = sorted({*table[:, FIELDS.index(name)], float(chosen[name])})
            if len(values) > 1:
                found.append(_choice(name, label, [f"{value:g}" for value in values], chosen[name]))
        stages = [stage for stage, one in ZERO.items() if self._has(table, SHARDED, one)]
        found.append(_choice(SHARDING, "ZeRO stage", [str(stage) for stage in stages], chosen[SHARDING]))
        repeated = [name for name, one in _RECOMPUTATIONS.items() if self._has(table, RECOMPUTED, one)]
        found.append(_choice(RECOMPUTATION, "Recomputation", repeated, chosen[RECOMPUTATION]))
        if self._has_fp8:
            found.append(_choice(FORMAT, "Products in fp8", ["0 %", "100 %"], chosen[FORMAT]))
        return found

    @staticmethod
    def _has(table: np.ndarray, fields: tuple[str, ...], switches: tuple[float, ...]) -> bool:
        return bool(np.any(np.all(table[:, [FIELDS.index(name) for name in fields]] == switches, axis=1)))


def _choice(field: str, label: str, names: list[str], chosen: str) -> Choice:
    names = names if chosen in names else [*names, chosen]
    return Choice(field, label, tuple(Option(name, name == chosen) for name in names))


def _number(text: str | None, otherwise: float) -> float:
    try:
        value = float(text or "")
    except ValueError:
        return otherwise
    return value if (np.isfinite(value) and value > 0.0) or text == "0" else otherwise
