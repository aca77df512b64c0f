"""The answers of `presets`: the numbers that come with the project."""

from collections import Counter
from typing import Any

from energymodel.readers.expressions import data_file
from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.cells import Column, Quantity, words
from energymodel.scenarios.files import CATEGORIES, companions, is_quantity, names, read_preset
from energymodel.scenarios.rents import CONTRACTS, rent

KINDS = ("measured", "published", "specification", "derived", "definition", "prior")
MAIN = data_file(__file__, "presets.toml")
"""Numbers that tell the presets of a category apart, with their headings, and a note below the table."""
_ALSO = (
    ("To print one, ready to be copied and edited", "energymodel presets show NAME"),
    ("To compare those of a category", "energymodel presets hardware"),
)


def presets_answer() -> Answer:
    """All categories and all presets."""
    listed = [
        [category, name, str(read_preset(category, name).get("title", ""))]
        for category in CATEGORIES
        for name in names(category)
    ]
    counts = [[category, what, len(names(category))] for category, what in CATEGORIES.items()]
    columns = [words("category"), words("holds", "what it holds"), Column("presets", kind="count")]
    return Answer(
        "presets",
        "Presets",
        Sentence(f"{len(listed)} in {len(counts)} categories"),
        [],
        [
            Table("categories", "Categories", columns, counts),
            Table("presets", "Presets", [words("category"), words("preset"), words("title")], listed),
        ],
        also=_ALSO,
        rows="presets",
    )


def category_answer(category: str) -> Answer:
    """Presets of a category by name: main numbers, title, how many numbers there are of each kind."""
    main, units = MAIN.get(category, {}), {}
    rows: list[list[Any]] = []
    for name in names(category):
        preset = read_preset(category, name)
        numbers = dict(_quantities(preset))
        kinds = Counter(str(number.get("kind", "given")) for number in numbers.values())
        units |= {path: numbers[path]["unit"] for path in main if path in numbers}
        cells = [_cell(numbers[path]) if path in numbers else None for path in main]
        node = companions(name).get("node", "") if category == "hardware" else ""
        of_kinds = [kinds[kind] for kind in KINDS]
        count = f"{kinds['prior']} of {sum(of_kinds)}"
        rows.append([name, *cells, node, count, str(preset.get("title", "")), *of_kinds])
    columns = [
        words("preset"),
        *(Column(path, title, units.get(path, "1")) for path, title in main.items()),
        words("node", "usual node", "short" if category == "hardware" else "data"),
        words("priors_of", "priors"),
        words("title", level="data"),
        *(Column(kind, kind, kind="count", level="data") for kind in KINDS),
    ]
    note = "The last column counts priors, which are assumed, among all numbers of a preset."
    note = " ".join(filter(None, (MAIN["notes"].get(category), note)))
    return Answer(
        "presets",
        category,
        Sentence(CATEGORIES[category]),
        [],
        [Table("presets", "Presets", columns, rows, note=note), *([rents_table()] if category == "prices" else [])],
        also=[("To say where each number is from", "energymodel presets show NAME")],
        rows="presets",
    )


def rents_table() -> Table:
    """Rent of each accelerator under each contract."""
    chips = {name: read_preset("hardware", name) for name in names("hardware")}
    rows = [
        [name, *(_cell(rent(chip, contract)) for contract in CONTRACTS.values())]
        for name, chip in chips.items()
        if "price" in chip
    ]
    columns = [
        words("accelerator"),
        *(Column(contract, name, "USD/s", digits="two") for name, contract in CONTRACTS.items()),
    ]
    return Table("rents", "Rent of one accelerator, energy included", columns, rows, note=MAIN["notes"]["rents"])


def _quantities(table: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    if is_quantity(table):
        return [(path, table)]
    if not isinstance(table, dict):
        return []
    return [pair for key, value in table.items() for pair in _quantities(value, f"{path}.{key}" if path else key)]


def _cell(number: dict[str, Any]) -> Quantity:
    return Quantity(float(number["value"]), prior=str(number.get("source", "")) if number["kind"] == "prior" else "")
