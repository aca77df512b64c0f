"""Answers on a terminal, by rich."""

from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.cells import Level, Quantity, is_shown
from energymodel.report.grid import Grid, grid
from energymodel.report.number import PRIOR_MARK, sentence

_BAR = 20


def terminal(answer: Answer, *, full: bool = False) -> RenderableType:
    """Headline, sentences, tables, and what to do next; with `full` all rows, tables and notes."""
    level: Level = "full" if full else "short"
    tables = [table for table in answer.tables if is_shown(table.level, level) and table.rows]
    if answer.screen and not full:
        tables = [answer.table(name) for name in answer.screen]
    parts: list[RenderableType] = [Text(f"{answer.title}: {sentence(answer.headline)}", style="bold"), ""]
    parts += [Text(sentence(words)) for words in answer.sentences]
    parts += [Text(f"Warning: {sentence(words)}", style="yellow") for words in answer.warnings]
    for table in tables:
        parts += ["", _Table(table, level), *([Text(table.note, style="dim")] if table.note else [])]
    notes = [*(answer.notes if full else ()), *_legend(answer, tables, full=full)]
    if brief := bool(answer.screen) and not full:  # sentences say what intervals are
        notes = [note for note in notes if note.words != answer.intervals]
    parts += ["", *(Text(sentence(note), style="dim") for note in notes)] if notes or brief else []
    parts += [""] if answer.also and not brief else []
    parts += [  # on one line each, so that a command can be copied
        Text(f"{words}: {command}", style="dim", no_wrap=True, overflow="ignore") for words, command in answer.also
    ]
    if hidden := sum(is_shown(table.level, "full") and table not in tables for table in answer.tables if table.rows):
        more = f"{hidden} more table{'s' * (hidden > 1)} and all rows"
        parts += [] if full else [Text(f"--full shows {more}; -o report.html draws them.", style="dim")]
    return Group(*parts)


def _legend(answer: Answer, tables: list[Table], *, full: bool) -> list[Sentence]:
    """What intervals and marks mean, where there are any."""
    words = [cell for table in tables for line in grid(table, "full").lines for cell in line]
    notes = [Sentence(answer.intervals)] if any(cell.ends for cell in words) else []
    priors = [pair for table in tables for pair in table.priors("data")]
    if priors:
        notes.append(Sentence(f"{PRIOR_MARK} prior: assumed, not measured{'' if full else '; --full says why'}"))
        notes += [Sentence(f"  {title}: {reason}") for title, reason in dict.fromkeys(priors)] if full else []
    return notes


class _Table(NamedTuple):
    """A table on its lines; where it is too wide, a single row gets a line for each number, and others are wrapped."""

    table: Table
    level: Level

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = self._drawn(grid(self.table, self.level))
        if sum(map(_narrowest, drawn.columns)) > options.max_width:
            is_row = len(self.table.rows) == 1
            drawn = self._drawn(grid(self.table, self.level, tall=is_row), overflow="fold")
        yield drawn

    def _drawn(self, cells: Grid, **look: Any) -> RichTable:
        table, look = self.table, look or {"no_wrap": True}
        rich = RichTable(box=None, title=escape(table.title), title_justify="left", title_style="bold", pad_edge=False)
        rich.header_style, rich.show_header = "dim", cells.has_heads
        has_ends = [any(line[index].ends for line in cells.lines) for index in range(len(cells.columns))]
        if table.tall and self.level == "short" and len(table.rows) > 2:
            has_ends[1] = False  # no terminal has so many columns
        for column, ends in zip(cells.columns, has_ends, strict=True):
            if column.kind == "words" and not table.tall:
                rich.add_column(escape(column.title), overflow="fold")
            else:
                rich.add_column(escape(column.title), justify="left" if column.kind == "words" else "right", **look)
            if ends:
                rich.add_column("90 %" if column.title else "", justify="right", style="dim", **look)
        bar = next(
            (index for index, column in enumerate(cells.columns) if column.name and column.name == table.bars), None
        )
        if bar is not None:
            rich.add_column("", no_wrap=True, overflow="crop")
        for line in cells.lines:
            words = [
                word
                for cell, ends in zip(line, has_ends, strict=True)
                for word in ((cell.text, cell.ends) if ends else (cell.text,))
            ]
            rich.add_row(*map(escape, words), *([] if bar is None else [_bar(line[bar].cell)]))
        return rich


def _narrowest(column: Column) -> int:
    """Characters that a column takes at least, with its padding, if no word of it is broken."""
    texts = [str(text) for text in (column.header, *column.cells)]
    return 2 + max(cell_len(part) for text in texts for part in ([text] if column.no_wrap else text.split() or [""]))


def _bar(cell: object) -> str:
    share = max(0.0, cell.value) * _BAR if isinstance(cell, Quantity) else 0.0
    return "█" * int(share) + ("▌" if share % 1.0 >= 0.5 else "")
