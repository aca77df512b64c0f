"""Every number of an answer, with its interval, is the same on a terminal, on a page, in JSON, CSV and data frames."""

import ast
import csv
import html
import io
import json
import math
import re
from pathlib import Path

import jsonschema
import pytest

import energymodel
from energymodel.explorer import fragments
from energymodel.explorer.answer import READ
from energymodel.report import data, drawing, number
from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.cells import Column, Quantity, is_shown
from energymodel.report.page import page_html
from energymodel.report.schema import KEYS, schema_of
from report.page.read_page import assert_sound
from report.stored_answers import BUILDERS, answer, on_terminal

ROOT = Path(energymodel.__file__).parent


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def words_of(table: Table, row: int, index: int) -> list[str]:
    """Texts of a cell: the number and its interval."""
    column, cell = table.column_of(row, table.columns[index]), table.rows[row][index]
    layout = None
    if not table.tall:
        layout = number.layout_of_column([line[index] for line in table.rows], table.columns[index])
    return [
        flat(words) for words in (number.text(cell, column, layout), number.interval(cell, column, layout)) if words
    ]


def numbers(table: Table):
    for row, cells in enumerate(table.rows):
        for index, cell in enumerate(cells):
            if isinstance(cell, Quantity):
                yield row, index, cell


@pytest.fixture(scope="module", params=list(BUILDERS))
def surface(request) -> Answer:
    return answer(request.param)


def test_json_obeys_the_schema_of_its_command(surface):
    if surface.command == "explore":
        pytest.skip("has no JSON")
    jsonschema.validate(json.loads(data.dumps(surface)), schema_of(surface.command))
    tables = {table.name: {column.name for column in table.columns} for table in surface.tables}
    listed = {name for name in tables if not name.startswith("indices_")}
    assert listed <= {*KEYS["commands"][surface.command]}
    asked = {"limit_values", "conflicts", "points", "numbers", "presets"}  # have columns named by what was asked
    for name in listed - asked:
        assert tables[name] <= KEYS["tables"][name].keys(), name


def test_text_that_a_spreadsheet_would_compute_is_inert():
    cells = ["=1+1", "+x", " @SUM(A1)", "-cmd", "a\x07\tb\n=c", "-5", "1e3"]
    table = Table.of("t", "t", {Column("text", kind="words"): cells, Column("number"): [-1.5] * len(cells)})
    rows = [*csv.reader(io.StringIO(data.csv_text(table)))][1:]
    inert = ["'=1+1", "'+x", "' @SUM(A1)", "'-cmd", "a\\u0007\\tb\\n=c", "-5", "1e3"]
    assert rows == [[cell, "-1.5"] for cell in inert]


def test_a_terminal_has_every_number_in_the_line_of_its_name(surface):
    lines = [flat(line) for line in on_terminal(surface).splitlines()]
    for table in (table for table in surface.tables if is_shown(table.level, "full")):
        for row, index, _ in numbers(table):
            if not is_shown(table.columns[index].level, "full"):
                continue
            name = (
                table.columns[index].title
                if table.tall
                else next((w for w in table.rows[row] if isinstance(w, str)), "")
            )
            words = words_of(table, row, index)
            assert any(all(word in line for word in (flat(name).strip(), *words)) for line in lines), (
                table.name,
                words,
            )


def test_a_page_has_every_number_in_a_cell(surface):
    page = page_html(surface, "energymodel")
    cells = {
        flat(html.unescape(re.sub(r"<[^>]+>", "", cell))).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", page)
    }
    for table in (table for table in surface.tables if is_shown(table.level, "page")):
        for row, index, _ in numbers(table):
            if is_shown(table.columns[index].level, "page"):
                assert " ".join(words_of(table, row, index)) in cells, (table.name, table.columns[index].name)


def test_json_and_csv_have_all_digits(surface):
    tree = json.loads(data.dumps(surface))
    assert tree["schema"] == {"name": f"energymodel.{surface.command}", "version": data.VERSION}
    for table in surface.tables:
        rows = list(csv.DictReader(io.StringIO(data.csv_text(table))))
        for row, index, cell in numbers(table):
            column = table.columns[index]
            own = any(getattr(line[index], "unit", "") for line in table.rows)
            unit = f" [{column.unit}]" if column.unit and not own else ""
            stored = tree["tables"][table.name]["rows"][row][column.name]
            stored = stored if isinstance(stored, dict) else {"value": stored, "low": cell.low, "high": cell.high}
            written = {end: rows[row].get(f"{column.name}{end and ' ' + end}{unit}") for end in ("", "low", "high")}
            for end, value in zip(("value", "low", "high"), cell[:3], strict=True):
                if value is not None and math.isfinite(value):
                    assert stored[end] == value
                    assert float(written["" if end == "value" else end] or "nan") == value


def test_data_frames_have_all_digits(surface):
    pytest.importorskip("pandas")
    for table in surface.tables:
        frame = data.to_dataframe(table)
        for row, index, cell in numbers(table):
            value = frame[table.columns[index].name].iloc[row]
            assert value == cell.value or math.isnan(cell.value)


def test_charts_have_the_words_of_their_table(surface):
    for chart in surface.charts:
        table = surface.table(chart.table)
        svg = flat(html.unescape(re.sub(r"<[^>]+>", " ", drawing.svg(surface, chart, 860.0))))
        if chart.kind not in ("bars", "stack", "flow", "intervals"):
            continue
        for name in chart.y or ("",):
            for label, column, cell in table.series(name):
                names = {label, *(named.name for named in table.columns if table.tall and named.title == label)}
                drawn = (not chart.only or names & set(chart.only)) and (
                    number.known_ends(cell) or chart.kind != "intervals"
                )
                assert not drawn or number.text(cell, column) in svg, (chart.table, label)


def test_pages_are_sound(surface):
    markup = page_html(surface, 'energymodel evaluate --set "plan.clock=<0.9>"')
    page = assert_sound(markup, data=False, drawn=bool(surface.charts))
    assert page.headings[0] == "Summary"
    assert page.headings[-1] == "Repeat it"


def test_files_alone_hold_what_is_no_table_for_people(surface):
    text = on_terminal(surface)
    assert all(table.title not in text for table in surface.tables if table.level == "data")


def test_a_command_to_copy_is_on_one_line(surface):
    lines = on_terminal(surface, 60).splitlines()
    assert all(any(line.endswith(command) for line in lines) for _, command in surface.also)


@pytest.mark.parametrize("name", ["evaluate", "optimize"])
def test_a_first_screen_has_25_lines_and_numbers_of_the_other_tables(name):
    result = answer(name)
    screen = on_terminal(result, 112, full=False).rstrip().splitlines()
    assert len(screen) <= 25
    for table in map(result.table, result.screen):
        of_others = {cell for other in result.tables if other is not table for row in other.rows for cell in row}
        assert {cell for row in table.rows for cell in row if isinstance(cell, Quantity)} <= of_others


def test_a_narrow_terminal_loses_no_word(surface):
    assert "\N{HORIZONTAL ELLIPSIS}" not in on_terminal(surface, 60)


def test_a_single_row_that_is_too_wide_has_a_line_for_each_number():
    columns = [Column(name, unit="W") for name in ("power of a chip", "power of a node", "power of the site")]
    best = Table("best", "Best point", columns, [[700.0, 10.2e3, 25e6]])
    surface = Answer("sweep", "Test", Sentence("done"), [], [best])
    assert on_terminal(surface, 60).splitlines()[-1].split() == ["700", "W", "10.2", "kW", "25", "MW"]
    lines = [line.split() for line in on_terminal(surface, 40).splitlines()]
    assert ["power", "of", "a", "node", "10.2", "kW"] in lines


def test_the_explorer_shows_what_evaluate_prints():
    page, printed = answer("explore"), answer("evaluate")
    parts = {name: flat(html.unescape(re.sub(r"<[^>]+>", " ", part))) for name, part in fragments.parts(page).items()}
    outcome, limits, energy = (printed.table(name) for name in ("outcome", "limits", "energy_parts"))
    for name in READ:
        column, cell = outcome.number(name)
        ends = number.interval(cell, column)
        tile = f"{number.text(cell, column)} {f'90 %: {ends}' if ends else ''}".strip()
        assert f"{column.title} {tile}".lower() in parts["outcome"].lower()
    assert number.sentence(printed.sentences[2]) in parts["limits"]
    for row, index, _ in numbers(limits):
        words = [limits.columns[index].title, *words_of(limits, row, index)]
        assert re.search(".*".join(map(re.escape, words)), parts["limits"])
    figure = flat(html.unescape(re.sub(r"<[^>]+>", " ", drawing.svg(page, page.charts[1], 860.0))))
    assert all(words in figure for row, index, _ in numbers(energy) for words in words_of(energy, row, index)[:1])


def formats_numbers(path: Path) -> bool:
    """Whether a file has a format spec with a point, or writes quantities."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    specs = [node.format_spec for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) and node.format_spec]
    points = [
        part for spec in specs for part in ast.walk(spec) if isinstance(part, ast.Constant) and "." in str(part.value)
    ]
    return bool(points) or any(isinstance(node, ast.Name) and node.id == "format_quantity" for node in ast.walk(tree))


NOT_YET_MOVED = {"report/charts/axes.py", "report/charts/svg.py"}
"""Files that still format numbers themselves; the list only shrinks. Charts format ticks and coordinates."""


def test_numbers_become_text_in_one_module():
    files = [path for room in ("report", "cli", "explorer") for path in (ROOT / room).rglob("*.py")]
    formatting = {str(path.relative_to(ROOT)) for path in files if path.name != "number.py" and formats_numbers(path)}
    assert formatting == NOT_YET_MOVED
