"""The answers of `presets` and `doctor`: the numbers that come with the project, and what is installed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from energymodel.report.answer import DATA, Answer, Column, Quantity, Sentence, Table, number, words
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
        *(words("priors_of", "priors"), words("title", level=DATA)),
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
    words("suits", "suits", DATA),
)


def doctor_answer(facts: Mapping[str, Any], extras: Mapping[str, str], problems: Sequence[str]) -> Answer:
    """What is here.

    - `facts`: of `doctor_command.facts`, and `cache`.
    - `extras`: purpose of each extra, by name; `problems`: what keeps commands from running.
    """
    cache, terminal, kinds = facts["cache"], facts["terminal"], [device["kind"] for device in facts["devices"]]
    held = f"{cache['lowered_programs']:,} lowered and {cache['compiled_programs']:,} compiled programs"
    columns = [
        *(words("version", "energymodel"), words("python", "Python"), words("platform", "machine")),
        *(Column("cores", kind="count"), words("backend", "backend of JAX"), words("devices"), words("float64")),
        *(words("kernels", "kernels"), Column("presets", kind="count"), words("terminal")),
        *(words("cache"), words("refusal", "not used, because"), Column("cache_size", "it takes", "B")),
        *(
            words("programs", "it holds"),
            Column("lowered_programs", level=DATA),
            Column("compiled_programs", level=DATA),
        ),
        words("of_this_project", level=DATA),
    ]
    here = [
        *(facts[name] for name in ("version", "python", "platform", "cores", "backend")),
        ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)),
        facts["float64"],
        facts["kernels"] or "importable",
        sum(facts["presets"].values()),
        f"{terminal['columns']} columns, {terminal['encoding']}" if terminal["interactive"] else "none",
        *(cache["folder"] or "", cache["refusal"] or "", cache["size_b"], held),
        *(cache["lowered_programs"], cache["compiled_programs"], cache["of_this_project"]),
    ]
    packages = [
        [
            package["name"],
            package["version"] or "missing",
            *(package["wanted"], package["extra"] or "every command", package["suits"]),
        ]
        for package in facts["packages"]
    ]
    missing = {package["extra"] for package in facts["packages"] if package["extra"] and not package["version"]}
    of_extras = [
        [extra, purpose, f'pip install "energymodel[{extra}]"' if extra in missing else "installed"]
        for extra, purpose in extras.items()
    ]
    listed = [[category, count] for category, count in facts["presets"].items()]
    return Answer(
        "doctor",
        "Installation",
        Sentence("Something is missing" if problems else "Everything that the commands need is here"),
        [],
        [
            Table("installation", "This machine", columns, [here], tall=True),
            Table("packages", "Packages", _PACKAGES, packages),
            Table("extras", "Optional packages", [words("extra"), words("for"), words("install")], of_extras),
            Table("presets", "Presets", [words("category"), Column("presets", kind="count")], listed, level=DATA),
        ],
        warnings=[Sentence(problem) for problem in problems],
        also=[("To clear the cache", "energymodel doctor --clear-cache")] if cache["folder"] else [],
        rows="packages",
        result="not trusted" if problems else "successful",
        message=problems[0] if problems else "",
    )


def cleared_answer(folder: str, removed: int, size: int, left: int) -> Answer:
    """What was removed from the cache, and what was `left` in place."""
    numbers = {"size": number(size, "B")}
    stays = [Sentence(f"Left in place: {left:,} compiled by JAX, perhaps for other projects.")] if left else []
    columns = [
        words("folder"),
        Column("removed", kind="count"),
        Column("size", "size", "B"),
        Column("left", kind="count"),
    ]
    return Answer(
        "doctor",
        "Cache",
        Sentence(f"Removed {removed:,} programs, {{size}}, from {folder}.", numbers),
        stays,
        [Table("cleared", "Cleared", columns, [[folder, removed, size, left]], tall=True, level=DATA)],
    )
