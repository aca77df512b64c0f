"""The answers of `presets` and `doctor`: the numbers that come with the project, and what is installed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.cells import DATA, Column, Quantity, number, words
from energymodel.scenarios.files import CATEGORIES, companions, is_quantity, names, read_preset

KINDS = ("measured", "published", "specification", "derived", "definition", "prior")
MAIN = {
    "hardware": {
        "peak_flops": "bf16",
        "memory_capacity": "memory",
        "memory_bandwidth": "bandwidth",
        "rated_power": "power",
        "reference_clock": "clock",
    },
    "nodes": {
        "chips": "chips",
        "scale_up.lanes": "lanes",
        "scale_up.lane_bandwidth": "a lane",
        "overhead_power": "host",
    },
}
"""Numbers that tell the presets of a category apart, and their headings."""
_NOTES = {
    "hardware": "bf16 is dense and accumulates in fp32; clock is that of the peak rate, 1 in plan.clock. Each belongs "
    "to the node that --set system.accelerator=NAME brings along; system.node=NAME takes another.",
    "nodes": "A lane is one direction of one link; host is the power of the node beside chips and fans.",
}
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
        words("node", "usual node", 0 if category == "hardware" else DATA),
        words("priors_of", "priors"),
        words("title", level=DATA),
        *(Column(kind, kind, kind="count", level=DATA) for kind in KINDS),
    ]
    note = "The last column counts priors, which are assumed, among all numbers of a preset."
    return Answer(
        "presets",
        category,
        Sentence(CATEGORIES[category]),
        [],
        [Table("presets", "Presets", columns, rows, note=" ".join(filter(None, (_NOTES.get(category), note))))],
        also=[("To say where each number is from", "energymodel presets show NAME")],
        rows="presets",
    )


def _quantities(table: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    if is_quantity(table):
        return [(path, table)]
    if not isinstance(table, dict):
        return []
    return [pair for key, value in table.items() for pair in _quantities(value, f"{path}.{key}" if path else key)]


def _cell(number: dict[str, Any]) -> Quantity:
    return Quantity(float(number["value"]), prior=str(number.get("source", "")) if number["kind"] == "prior" else "")


_PACKAGES = (
    words("name", "package"),
    words("version"),
    words("wanted", "needed"),
    words("extra", "for"),
    words("suits", level=DATA),
)


def doctor_answer(present: Mapping[str, Any], extras: Mapping[str, str], problems: Sequence[str]) -> Answer:
    """What is here.

    - `present`: of `doctor_command.facts`, and `cache`.
    - `extras`: purpose of each extra, by name; `problems`: what keeps commands from running.
    """
    cache, terminal, kinds = present["cache"], present["terminal"], [device["kind"] for device in present["devices"]]
    here: dict[Column, Any] = {words("version", "energymodel"): present["version"]}
    here |= {words("python", "Python"): present["python"], words("platform", "machine"): present["platform"]}
    here |= {Column("cores", kind="count"): present["cores"], words("backend", "backend of JAX"): present["backend"]}
    where = "" if present["backend"] == "cpu" else " for sweep; other commands run on the CPU, or where --device says"
    here[words("devices")] = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)) + where
    here |= {words("float64"): present["float64"], words("kernels"): present["kernels"] or "importable"}
    here[Column("presets", kind="count")] = sum(present["presets"].values())
    screen = f"{terminal['columns']} columns, {terminal['encoding']}" if terminal["interactive"] else "none"
    here |= {words("terminal"): screen, words("cache"): cache["folder"] or ""}
    here |= {words("refusal", "not used, because"): cache["refusal"] or ""}
    here[Column("cache_size", "it takes", "B")] = cache["size_b"]
    held = f"{cache['lowered_programs']:,} lowered and {cache['compiled_programs']:,} compiled programs"
    here[words("programs", "it holds")] = held
    here |= {Column(name, level=DATA): cache[name] for name in ("lowered_programs", "compiled_programs")}
    here[words("of_this_project", level=DATA)] = cache["of_this_project"]
    usual = {"version": "missing", "extra": "every command"}
    packages = [
        [package[column.name] or usual.get(column.name, package[column.name]) for column in _PACKAGES]
        for package in present["packages"]
    ]
    missing = {package["extra"] for package in present["packages"] if package["extra"] and not package["version"]}
    of_extras = [
        [extra, purpose, f'pip install "energymodel[{extra}]"' if extra in missing else "installed"]
        for extra, purpose in extras.items()
    ]
    counts = [words("category"), Column("presets", kind="count")]
    return Answer(
        "doctor",
        "Installation",
        Sentence("Something is missing" if problems else "Everything that the commands need is here"),
        [],
        [
            Table.facts("installation", "This machine", here),
            Table("packages", "Packages", _PACKAGES, packages),
            Table("extras", "Optional packages", [words("extra"), words("for"), words("install")], of_extras),
            Table("presets", "Presets", counts, [*present["presets"].items()], level=DATA),
        ],
        warnings=[Sentence(problem) for problem in problems],
        also=[("To clear the cache", "energymodel doctor --clear-cache")] if cache["folder"] else [],
        rows="packages",
        result="not trusted" if problems else "successful",
        message=problems[0] if problems else "",
    )


def cleared_answer(folder: str, removed: int, size: int, left: int) -> Answer:
    """What was removed from the cache, and what was `left` in place."""
    stays = [Sentence(f"Left in place: {left:,} compiled by JAX, perhaps for other projects.")] if left else []
    cells: dict[Column, Any] = {words("folder"): folder, Column("removed", kind="count"): removed}
    cells |= {Column("size", unit="B"): size, Column("left", kind="count"): left}
    text = f"Removed {removed:,} programs, {{size}}, from {folder}."
    headline = Sentence(text, {"size": number(size, "B")})
    return Answer("doctor", "Cache", headline, stays, [Table.facts("cleared", "Cleared", cells, DATA)])
