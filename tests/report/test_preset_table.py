"""Does the page on accelerators say what the presets say?"""

from pathlib import Path

import pytest

from energymodel.report.preset_table import category_json
from energymodel.scenarios.files import names
from energymodel.units import format_quantity

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")
ROWS = {line.split("`")[1]: line for line in PAGE.splitlines() if line.startswith("| `")}
PRESETS = category_json("hardware")


@pytest.mark.parametrize("name", [name for name in names("hardware") if name != "near-limit"])
def test_the_page_has_every_accelerator_with_its_numbers(name):
    preset = PRESETS[name]
    cells = [cell.strip() for cell in ROWS[name].strip("|").split("|")]
    shown = {field: format_quantity(one["value"], one["unit"]) for field, one in preset["numbers"].items()}
    shown["reference_clock"] = f"{preset['numbers']['reference_clock']['value'] / 1e6:.0f} MHz"
    marked = [text + (" †" if preset["numbers"][field]["kind"] == "prior" else "") for field, text in shown.items()]
    assert cells == [f"`{name}`", *marked, f"`{preset['node']}`", str(preset["kinds"]["prior"])]


@pytest.mark.parametrize("name", [name for name in names("nodes") if name.startswith("pcie") or name.endswith("pair")])
def test_the_page_has_every_node_of_cards(name):
    family, _, count = name.rpartition("-")
    assert f"`{name}`" in PAGE or (f"`{family}-1`" in PAGE and f"`-{count}`" in PAGE)
