"""The answers of `doctor`: what is installed here and what is missing, and what was removed from the cache."""

import importlib.metadata
import os
import platform
import shutil
import sys
from typing import Any

import jax
from packaging.requirements import Requirement

from energymodel.readers.expressions import data_file
from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.cells import Column, declared, number, words
from energymodel.runtime.cache_folder import CacheContents, contents, default_folder, folder_in_use
from energymodel.scenarios.files import CATEGORIES, names

PACKAGE = "energymodel"
EXTRAS = data_file(__file__, "extras.toml")["extras"]
"""What a person gets from each extra."""


def doctor_answer(kernels: str | None) -> Answer:
    """Versions, devices, packages and the cache of this machine.

    - `kernels`: why the accelerator kernels cannot be imported; None where they can.
    """
    packages = packages_table()
    with jax.enable_x64(True):
        float64 = bool(jax.numpy.zeros(1).dtype == "float64")
    problems = [
        f"{name} {'is missing' if version == 'missing' else version}; needed: {wanted or 'any version'}. "
        f'Install it: pip install "energymodel{f"[{extra}]" if extra in EXTRAS else ""}".'
        for name, version, wanted, extra, suits in packages.rows
        if suits == "no" and (extra not in EXTRAS or version != "missing")
    ]
    problems += [] if float64 else ["JAX does not compute in float64 here. Unset JAX_ENABLE_X64 and try again."]
    problems += [f"The kernels cannot be imported: {kernels}"] if kernels else []
    missing = {extra for _, version, _, extra, _ in packages.rows if version == "missing"}
    extras = [
        [name, purpose, f'pip install "energymodel[{name}]"' if name in missing else "installed"]
        for name, purpose in EXTRAS.items()
    ]
    counts = {category: len(names(category)) for category in CATEGORIES}
    counted = [words("category"), Column("presets", kind="count")]
    here = machine_cells(float64=float64, kernels=kernels or "importable", presets=sum(counts.values()))
    return Answer(
        "doctor",
        "Installation",
        Sentence("Something is missing" if problems else "Everything that the commands need is here"),
        [],
        [
            Table.facts("installation", "This machine", here),
            packages,
            Table("extras", "Optional packages", [words("extra"), words("for"), words("install")], extras),
            Table("presets", "Presets", counted, [*counts.items()], level="data"),
        ],
        warnings=[Sentence(problem) for problem in problems],
        also=[("To clear the cache", "energymodel doctor --clear-cache")] if folder_in_use().path is not None else [],
        rows="packages",
        result="not trusted" if problems else "successful",
        message=problems[0] if problems else "",
    )


def machine_cells(*, float64: bool, kernels: str, presets: int) -> dict[Column, Any]:
    """All that helps to answer why a command does not run, or runs slowly, on this machine."""
    folder, refusal = folder_in_use()
    held = CacheContents(0, 0, 0) if folder is None else contents(folder)
    kinds, backend = [device.device_kind for device in jax.devices()], jax.default_backend()
    where = "" if backend == "cpu" else " for sweep; other commands run on the CPU, or where --device says"
    screen = f"{shutil.get_terminal_size().columns} columns, {sys.stdout.encoding}" if sys.stdout.isatty() else "none"
    return {
        words("version", "energymodel"): importlib.metadata.version(PACKAGE),
        words("python", "Python"): platform.python_version(),
        words("platform", "machine"): platform.platform(),
        Column("cores", kind="count"): os.cpu_count(),
        words("backend", "backend of JAX"): backend,
        words("devices"): ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)) + where,
        words("float64"): float64,
        words("kernels"): kernels,
        Column("presets", kind="count"): presets,
        words("terminal"): screen,
        words("cache"): str(folder or ""),
        words("refusal", "not used, because"): refusal or "",
        Column("cache_size", "it takes", "B"): held.size,
        words("programs", "it holds"): f"{held.lowered:,} lowered and {held.compiled:,} compiled programs",
        Column("lowered_programs", level="data"): held.lowered,
        Column("compiled_programs", level="data"): held.compiled,
        words("of_this_project", level="data"): folder is not None and folder == default_folder(),
    }


def packages_table() -> Table:
    """Packages that this one needs, then those of the extras that a user may want."""
    order, rows = [None, *EXTRAS], []
    for line in importlib.metadata.requires(PACKAGE) or []:
        required = Requirement(line)
        marker = required.marker
        wanted_by = [extra for extra in order if marker is None or marker.evaluate({"extra": extra or ""})]
        if required.name != PACKAGE and wanted_by:
            version = installed_version(required.name)
            suits = version is not None and required.specifier.contains(version, prereleases=True)
            rows.append([wanted_by[0], required.name, version or "missing", str(required.specifier), suits])
    rows.sort(key=lambda row: order.index(row[0]))
    listed = [[*row[1:4], row[0] or "every command", row[4]] for row in rows]
    return Table("packages", "Packages", declared("packages"), listed)


def installed_version(name: str) -> str | None:
    """Version of a package; None where it is missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def cleared_answer(folder: str, removed: int, size: int, left: int) -> Answer:
    """What was removed from the cache, and what was `left` in place."""
    stays = [Sentence(f"Left in place: {left:,} compiled by JAX, perhaps for other projects.")] if left else []
    cells: dict[Column, Any] = {words("folder"): folder, Column("removed", kind="count"): removed}
    cells |= {Column("size", unit="B"): size, Column("left", kind="count"): left}
    text = f"Removed {removed:,} programs, {{size}}, from {folder}."
    headline = Sentence(text, {"size": number(size, "B")})
    return Answer("doctor", "Cache", headline, stays, [Table.facts("cleared", "Cleared", cells, "data")])
