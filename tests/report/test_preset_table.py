"""The page on accelerators beside the presets."""

from pathlib import Path

import pytest

from energymodel.report.answers.presets import MAIN, category_answer
from energymodel.scenarios.files import names
from energymodel.units import format_quantity

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")
ROWS = {line.split("`")[1]: line for line in PAGE.splitlines() if line.startswith("| `")}
PRESETS = category_answer("hardware").table("presets")


@pytest.mark.parametrize("name", [name for name in names("hardware") if name != "near-limit"])
def test_the_page_has_every_accelerator_with_its_numbers(name):
    preset = dict(zip(PRESETS.names, PRESETS.rows[PRESETS.column("preset")[1].index(name)], strict=True))
    units = {column.name: column.unit for column in PRESETS.columns}
    cells = [cell.strip() for cell in ROWS[name].strip("|").split("|")]
    read = {path: format_quantity(preset[path].value, units[path]) for path in MAIN["hardware"]}
    read["reference_clock"] = f"{preset['reference_clock'].value / 1e6:.0f} MHz"
    marked = [text + (" †" if preset[path].prior else "") for path, text in read.items()]
    assert cells == [f"`{name}`", *marked, f"`{preset['node']}`", f"{preset['prior'].value:g}"]


@pytest.mark.parametrize("name", [name for name in names("nodes") if name.startswith("pcie") or name.endswith("pair")])
def test_the_page_has_every_node_of_cards(name):
    family, _, count = name.rpartition("-")
    assert f"`{name}`" in PAGE or (f"`{family}-1`" in PAGE and f"`-{count}`" in PAGE)
