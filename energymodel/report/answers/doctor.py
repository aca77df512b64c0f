"""The answers of `doctor`: what is installed, what is missing, and what the cache holds or held."""

from collections.abc import Mapping, Sequence
from typing import Any

from energymodel.report.answer import DATA, Answer, Column, Sentence, Table, number, words

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
