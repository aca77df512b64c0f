"""Answers on a terminal, by rich."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.cells import FULL, SHORT, Quantity
from energymodel.report.number import PRIOR_MARK, interval, layout_of_column, sentence, text

_BAR = 20


def terminal(answer: Answer, *, full: bool = False) -> RenderableType:
    """Headline, sentences, tables, and what to do next; with `full` all rows, tables and notes."""
    level = FULL if full else SHORT
    tables = [table for table in answer.tables if table.level <= level and table.rows]
    parts: list[RenderableType] = [Text(f"{answer.title}: {sentence(answer.headline)}", style="bold"), ""]
    parts += [Text(sentence(words)) for words in answer.sentences]
    parts += [Text(f"Warning: {sentence(words)}", style="yellow") for words in answer.warnings]
    for table in tables:
        parts += ["", _table(table, level), *([Text(table.note, style="dim")] if table.note else [])]
    notes = [*(answer.notes if full else ()), *_legend(answer, tables, full=full)]
    parts += ["", *(Text(sentence(note), style="dim") for note in notes)] if notes else []
    parts += [""] if answer.also else []
    parts += [  # on one line each, so that a command can be copied
        Text(f"{words}: {command}", style="dim", no_wrap=True, overflow="ignore") for words, command in answer.also
    ]
    if hidden := sum(table.level == FULL for table in answer.tables):
        more = f"{hidden} more table{'s' * (hidden > 1)} and all rows"
        parts += [] if full else [Text(f"--full shows {more}; -o report.html draws them.", style="dim")]
    return Group(*parts)


def _legend(answer: Answer, tables: list[Table], *, full: bool) -> list[Sentence]:
    """What intervals and marks mean, where there are any."""
    cells = [
        (table.column_of(index, column), cell)
        for table in tables
        for index, row in enumerate(table.rows)
        for column, cell in zip(table.columns, row, strict=True)
    ]
    notes = [Sentence(answer.intervals)] if any(interval(cell, column) for column, cell in cells) else []
    priors = [(column.title, cell.prior) for column, cell in cells if isinstance(cell, Quantity) and cell.prior]
    if priors:
        notes.append(Sentence(f"{PRIOR_MARK} prior: assumed, not measured{'' if full else '; --full says why'}"))
        notes += [Sentence(f"  {title}: {reason}") for title, reason in dict.fromkeys(priors)] if full else []
    return notes


def _table(table: Table, level: int) -> RichTable:
    rich = RichTable(box=None, title=escape(table.title), title_justify="left", title_style="bold", pad_edge=False)
    rich.header_style = "dim"
    indices = [index for index, column in enumerate(table.columns) if column.level <= level]
    if table.tall:
        rich.show_header = len(table.rows) > 1
        rich.add_column("", no_wrap=True)
        lines = [_line(table, index) for index in range(len(table.rows))]
        has_ends = [any(interval(cell, column) for column, cell in line) for line in lines]
        if level < FULL and len(lines) > 2:
            has_ends[0] = False  # no terminal has so many columns
        for index, ends in enumerate(has_ends):
            rich.add_column(escape(table.labels[index]) if table.labels else "", justify="right", no_wrap=True)
            if ends:
                rich.add_column("90 %" if table.labels else "", justify="right", style="dim", no_wrap=True)
        for index in indices:
            words = []
            for row, ends in enumerate(has_ends):
                column, cell = lines[row][index]
                words += [text(cell, column), *([interval(cell, column)] if ends else [])]
            if any(words):
                rich.add_row(*map(escape, (table.columns[index].title, *words)))
        return rich
    rows = [table.rows[index] for index in table.short] if table.short is not None and level < FULL else table.rows
    cells = {index: [row[index] for row in table.rows] for index in indices}
    layouts = {index: layout_of_column(cells[index], table.columns[index]) for index in indices}
    has_ends = {index: any(interval(cell, table.columns[index]) for cell in cells[index]) for index in indices}
    for index in indices:
        justify = "left" if table.columns[index].kind == "words" else "right"
        rich.add_column(escape(table.columns[index].title), justify=justify, no_wrap=justify == "right")
        if has_ends[index]:
            rich.add_column("90 %", justify="right", style="dim", no_wrap=True)
    if table.bars:
        rich.add_column("", no_wrap=True)
    rich.show_header = any(table.columns[index].title for index in indices)
    for row in rows:
        words = []
        for index in indices:
            cell, column, layout = row[index], table.columns[index], layouts[index]
            words += [text(cell, column, layout), *([interval(cell, column, layout)] if has_ends[index] else [])]
        rich.add_row(*map(escape, words), *([_bar(row[table.names.index(table.bars)])] if table.bars else []))
    return rich


def _line(table: Table, row: int) -> list[tuple]:
    return [(table.column_of(row, column), cell) for column, cell in zip(table.columns, table.rows[row], strict=True)]


def _bar(cell: object) -> str:
    share = max(0.0, cell.value) * _BAR if isinstance(cell, Quantity) else 0.0
    return "█" * int(share) + ("▌" if share % 1.0 >= 0.5 else "")
