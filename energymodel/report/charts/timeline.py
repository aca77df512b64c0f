"""What does each rank do when: boxes of work along time, one row for each rank?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from energymodel.report.charts.axes import SMALL, Axis, across
from energymodel.report.charts.chart import AbstractChart, Drawing
from energymodel.report.charts.colors import Hatches, hue
from energymodel.report.charts.legend import Entry
from energymodel.report.charts.scale import Scale
from energymodel.report.charts.svg import element, number, rectangle, text
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.text_width import widest

_HIGHEST, _LOWEST, _TALLEST = 22.0, 7.0, 420.0
_BETWEEN = 0.6  # gap after a box that is wide enough for one [px]
_FINEST = 0.6  # boxes of one kind that are closer than this [px] become one


class Box(NamedTuple):
    """Work of a rank from start to end [s]; `lane` of `lanes` where several things share its row."""

    rank: int
    kind: str
    start: float
    end: float
    lane: int = 0
    lanes: int = 1


@dataclass(frozen=True)
class RankTimeline(AbstractChart):
    """Boxes of work of ranks against time; what is empty is waiting."""

    title: str
    boxes: tuple[Box, ...]
    subtitle: str = ""
    end: float | None = None
    row_title: str = "rank"

    def _kinds(self) -> list[str]:
        return list(dict.fromkeys(box.kind for box in self.boxes))

    def _ranks(self) -> int:
        return max((box.rank for box in self.boxes), default=-1) + 1

    def _end(self) -> float:
        return self.end or max((box.end for box in self.boxes), default=1.0)

    def entries(self) -> list[Entry]:
        """Kinds of work."""
        return [Entry(kind, place) for place, kind in enumerate(self._kinds())]

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """Rows for the ranks; boxes of one kind are one path, so that thousands stay small."""
        ranks, kinds, end = self._ranks(), self._kinds(), self._end()
        row = min(_HIGHEST, max(_LOWEST, _TALLEST / max(ranks, 1)))
        left = widest([f"{ranks}"], SMALL) + 8.0
        left = max(left, widest([self.row_title], SMALL) + 8.0)
        scale, top = Scale(0.0, end, left, width - 14.0), 2.0
        marks = [rectangle(left, top + rank * row, width - 14.0 - left, row - 1.0, "em-back") for rank in range(ranks)]
        every = 1 if row >= 13.0 else -(-13 // int(row))
        for rank in range(0, ranks, every):
            marks.append(
                text(f"{rank}", left - 6.0, top + (rank + 0.5) * row + 4.0, size=SMALL, anchor="end", class_="em-muted")
            )
        for place, kind in enumerate(kinds):
            path = "".join(_path(self._merged(kind, scale), scale, top, row))
            marks.append(element("path", d=path, class_=f"em-box {hue(place)}"))
        marks += [
            rectangle(left, top + rank * row, width - 14.0 - left, row, "em-hit", self._hover(rank, worked))
            for rank, worked in enumerate(self._worked())
        ]
        bottom = top + ranks * row + 3.0
        back = across(Axis("time", "s", low=0.0, high=end), 0.0, end, left, width - 14.0, top, bottom)
        name = text(self.row_title, 0.0, bottom + 30.0, size=SMALL)
        return Drawing(bottom + 36.0, [*back, *marks, name])

    def _merged(self, kind: str, scale: Scale) -> Iterable[Box]:
        """Boxes of a kind, those that touch at this scale joined."""
        open_boxes: dict[tuple[int, int, int], Box] = {}
        for box in sorted((one for one in self.boxes if one.kind == kind), key=lambda one: one.start):
            place = (box.rank, box.lane, box.lanes)
            before = open_boxes.get(place)
            thin = scale(box.end) - scale(box.start) < 2.0 * _FINEST
            if before is not None and thin and scale(box.start) - scale(before.end) < _FINEST:
                open_boxes[place] = before._replace(end=max(before.end, box.end))
                continue
            if before is not None:
                yield before
            open_boxes[place] = box
        yield from open_boxes.values()

    def _worked(self) -> list[dict[str, float]]:
        found: list[dict[str, float]] = [{} for _ in range(self._ranks())]
        for box in self.boxes:
            of_rank = found[box.rank]
            of_rank[box.kind] = of_rank.get(box.kind, 0.0) + (box.end - box.start) / box.lanes
        return found

    def _hover(self, rank: int, worked: dict[str, float]) -> str:
        end = self._end()
        shares = ", ".join(f"{kind} {100.0 * time / end:.1f} %" for kind, time in worked.items())
        return f"{self.row_title} {rank}: {shares}, waiting {100.0 * (1.0 - sum(worked.values()) / end):.1f} %"

    def table(self) -> Table:
        """Time of each rank by kind of work, and what it waits."""
        kinds, end = self._kinds(), self._end()
        rows: Sequence[list[str | float | None]] = [
            [f"{rank}", *(worked.get(kind, 0.0) for kind in kinds), end - sum(worked.values())]
            for rank, worked in enumerate(self._worked())
        ]
        return Table([Column(self.row_title), *(Column(kind, "s") for kind in kinds), Column("waiting", "s")], rows)


def _path(boxes: Iterable[Box], scale: Scale, top: float, row: float) -> Iterable[str]:
    for box in boxes:
        height = (row - 1.0) / box.lanes
        left, width = scale(box.start), max(scale(box.end) - scale(box.start), 0.3)
        width -= _BETWEEN if width > 4.0 * _BETWEEN else 0.0
        y = top + box.rank * row + box.lane * height
        yield f"M{number(left)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"
