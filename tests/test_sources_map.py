"""The page docs/sources.md: it covers both source documents, and names only what exists."""

import ast
import re
from pathlib import Path

import pytest

import worked_numbers
from energymodel import sources

ROOT = Path(__file__).parents[1]
STATED = [name for name in vars(sources) if name.startswith("stated_")]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(energymodel(?:\.\w+)+)`", PAGE)))
TESTS = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))

LINKS = {
    "Training Dynamics": """
        Large Language Models; Global batch size; per-sample efficiency; batch size scaling exponent; hardware
        utilization efficiency; effective information processing rate; theoretical minimum energy; Landauer's
        principle; practical efficiency factor; training dynamics; Energy-Optimal Training; Time-Optimal Training;
        Cost-Optimal Training; Adaptive Batch Sizing; Hardware-Aware Optimization; Energy-Efficient Architecture
        Search; Quantum-Inspired Training; energy and information fundamental connections; theoretical minimum
        energy requirements for language model training; information theory
    """,
    "Engineering Optimization": """
        Hardware efficiency coefficient; Clock cycle time; Thermal capacity; Communication bandwidth; Energy-Time
        Product; System throughput; Architecture efficiency factor; instantaneous power consumption; Power
        efficiency coefficient; batch processing efficiency; Maximum batch efficiency; Optimal batch size; Energy
        Efficiency Index; Performance per Watt; Energy Utilization Factor; Voltage-Frequency Scaling; Memory
        Hierarchy Configuration; Cache line size optimization; Power Delivery Network; Dynamic power gating; Cooling
        System Design; Phase change cooling; Communication Fabric; Link width configuration; Protocol efficiency;
        Workload Distribution; Memory Access Patterns; Cache-aware algorithms; Prefetch optimization; Memory
        coalescing; Compute Bound; Memory Bound; Communication Bound; Dynamic Energy; Static Energy; Cooling Energy;
        Dynamic adaptation; theoretical minimum energy requirements for language model training
    """,
}
"""Every [[link]] of each document."""


@pytest.mark.parametrize("name", NAMES)
def test_name_on_the_page_can_be_imported(name):
    assert worked_numbers.resolve(name) is not None


def test_the_package_exports_every_stated_formula_and_the_page_names_it():
    defined = {
        node.name
        for path in (ROOT / "energymodel" / "sources").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert defined == set(STATED)
    assert not [name for name in STATED if f"`energymodel.sources.{name}`" not in PAGE]


@pytest.mark.parametrize("document", LINKS)
def test_every_link_of_a_document_is_in_its_part_of_the_page(document):
    part = PAGE.split(f"\n## {document}\n")[1].split("\n## ")[0]
    links = " ".join(LINKS[document].split()).split("; ")
    missing = [link for link in links if f"[[{link}]]" not in part]
    assert not missing


def test_every_test_on_the_page_exists():
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "tests" / "sources").glob("test_*.py")]
    defined = set(re.findall(r"^def (test_\w+)", "".join(texts), flags=re.MULTILINE))
    assert not set(TESTS) - defined


def test_every_formula_row_names_literal_corrected_and_test():
    rows = [line for line in PAGE.splitlines() if "`energymodel.sources.stated_" in line]
    incomplete = []
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        complete = len(cells) == 6 and "`energymodel." in cells[3] and "`test_" in cells[4] and cells[5].endswith(".")
        if not complete:
            incomplete.append(row[:80])
    assert len(rows) >= len(STATED) - 3
    assert not incomplete
