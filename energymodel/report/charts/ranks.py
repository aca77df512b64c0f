"""Work of ranks along time: boxes, one row for each rank; what is empty is waiting."""

from collections.abc import Iterable
from typing import NamedTuple

from energymodel.report.answer import Answer, Chart
from energymodel.report.cells import Column, Quantity
from energymodel.report.charts.axes import BELOW, SHARE, Axis
from energymodel.report.charts.bars import words_of
from energymodel.report.charts.svg import SMALL, Entry, Figure, Hatches, element, hue, number, rectangle, text
from energymodel.report.charts.words import widest
from energymodel.report.number import text as read

_HIGHEST, _LOWEST, _TALLEST = 22.0, 7.0, 420.0
_BETWEEN = 0.6  # gap after a box that is wide enough for one [px]
_FINEST = 0.6  # boxes of one kind that are closer than this [px] become one
_TOP = 2.0


class _Box(NamedTuple):
    """Work of a rank from start to end [s]; `lane` of `lanes` where several things share its row."""

    kind: str
    rank: int
    start: float
    end: float
    lane: int
    lanes: int


def timeline(answer: Answer, chart: Chart, width: float, _: Hatches) -> Figure:
    """Boxes by columns rank, kind, start, end, lane and lanes; those of one kind are one path, and so stay small."""
    table, title = answer.table(chart.table), chart.axis or "rank"
    columns = [
        [cell.value if isinstance(cell, Quantity) else 0.0 for cell in table.column(name)[1]]
        for name in ("rank", "start", "end", "lane", "lanes")
    ]
    boxes = [
        _Box(kind, int(rank), start, end, int(lane), int(lanes))
        for kind, rank, start, end, lane, lanes in zip(words_of(table, "kind"), *columns, strict=True)
    ]
    kinds = list(dict.fromkeys(box.kind for box in boxes))
    end = chart.limit[0] if chart.limit else max((box.end for box in boxes), default=1.0)
    ranks = max((box.rank for box in boxes), default=-1) + 1
    row = min(_HIGHEST, max(_LOWEST, _TALLEST / max(ranks, 1)))
    left = widest([f"{ranks}", title], SMALL) + 8.0
    axis = Axis("time", Column("", "", "s"), 0.0, end, start=left, end=width - 14.0)
    wide, bottom = axis.end - left, _TOP + ranks * row + 3.0
    marks = axis.across(_TOP, bottom)
    marks += [rectangle(left, _TOP + rank * row, wide, row - 1.0, "em-back") for rank in range(ranks)]
    for rank in range(0, ranks, 1 if row >= 13.0 else -(-13 // int(row))):
        base = _TOP + (rank + 0.5) * row + 4.0
        marks.append(text(f"{rank}", left - 6.0, base, anchor="end", class_="em-muted"))
    for index, kind in enumerate(kinds):
        outlines = (_outline(box, axis, row) for box in _merged(boxes, kind, axis))
        marks.append(element("path", d="".join(outlines), class_=f"em-box {hue(index)}"))
    for rank in range(ranks):
        spent = dict.fromkeys((box.kind for box in boxes if box.rank == rank), 0.0)
        for box in boxes:
            if box.rank == rank:
                spent[box.kind] += (box.end - box.start) / box.lanes / end
        spent["waiting"] = 1.0 - sum(spent.values())
        hover = ", ".join(f"{kind} {read(Quantity(share), SHARE)}" for kind, share in spent.items())
        marks.append(rectangle(left, _TOP + rank * row, wide, row, "em-hit", hover=f"{title} {rank}: {hover}"))
    marks.append(text(title, 0.0, bottom + 30.0))
    return Figure(bottom + BELOW, marks, [Entry(kind, index) for index, kind in enumerate(kinds)])


def _merged(boxes: Iterable[_Box], kind: str, axis: Axis) -> Iterable[_Box]:
    """Boxes of a kind, those that touch at this scale joined."""
    last: dict[tuple[int, int, int], _Box] = {}
    for box in sorted((box for box in boxes if box.kind == kind), key=lambda box: box.start):
        row = (box.rank, box.lane, box.lanes)
        before = last.get(row)
        is_thin = axis(box.end) - axis(box.start) < 2.0 * _FINEST
        if before is not None and is_thin and axis(box.start) - axis(before.end) < _FINEST:
            last[row] = before._replace(end=max(before.end, box.end))
            continue
        if before is not None:
            yield before
        last[row] = box
    yield from last.values()


def _outline(box: _Box, axis: Axis, row: float) -> str:
    height, left = (row - 1.0) / box.lanes, axis(box.start)
    width = max(axis(box.end) - left, 0.3)
    width -= _BETWEEN if width > 4.0 * _BETWEEN else 0.0
    y = _TOP + box.rank * row + box.lane * height
    return f"M{number(left)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"
