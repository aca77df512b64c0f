"""Every preset file: complete, in SI, within the ranges of its fields, and with a source for each number."""

import math
import re
import tomllib
from pathlib import Path

import pytest

from energymodel.scenarios.components import preset_in_si
from energymodel.units import SI_UNITS
from preset_layout import ROOT, fields_of, names, read

KINDS = {"measured", "specification", "published", "derived", "definition", "prior"}
KEYS = {"value", "unit", "kind", "source"}
DATA = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
DISTRIBUTION = re.compile(
    r"(lognormal|normal) \d*\.?\d+(e-?\d+)?|(uniform|beta) \d*\.?\d+(e-?\d+)? \d*\.?\d+(e-?\d+)?|joint [a-z-]+"
)
FILES = sorted(ROOT / folder / f"{name}.toml" for folder in DATA["folders"].split() for name in names(folder))
IDS = [f"{path.parent.name}/{path.stem}" for path in FILES]


def check_quantity(where, name, unit, table):
    assert KEYS <= set(table) <= KEYS | {"distribution"}, where
    number = table["value"]
    assert isinstance(number, float), f"{where}: {number!r} is not a float"
    assert math.isfinite(number), where
    assert number > 0 or (number == 0 and name in DATA["zero_allowed"].split()), f"{where}: {number}"
    assert table["unit"] == unit, f"{where}: {table['unit']} is not {unit}"
    assert table["unit"] in SI_UNITS, where
    assert table["kind"] in KINDS, where
    chosen = where.startswith("near-limit")  # a machine that nobody has built has no values in the world
    assert table["kind"] != "definition" or name in DATA["defined"].split() or chosen, (
        f"{where}: has a value in the world"
    )
    assert table["kind"] != "prior" or "distribution" in table, f"{where}: how far may the prior be off?"
    assert len(table["source"]) > 8, where
    if re.search(r"recalled|assumed|hypothetical|by analogy|imputed", table["source"]) and not chosen:
        assert table["kind"] == "prior", f"{where}: recalled or assumed, but {table['kind']}"
    if "distribution" in table:
        assert DISTRIBUTION.fullmatch(table["distribution"]), f"{where}: {table['distribution']}"


def check_component(where, tables):
    fields = fields_of(tables["component"])
    assert set(tables) - {"component", "title", "template", "switches"} == set(fields), where
    for name, kind in fields.items():
        if isinstance(kind, set):
            assert tables[name]["component"] in kind, where
            check_component(f"{where}.{name}", tables[name])
        elif isinstance(tables[name], list):  # stages that a plan chooses have no values in the world
            assert all(isinstance(number, float) and math.isfinite(number) for number in tables[name]), where
        else:
            check_quantity(f"{where}.{name}", name, kind, tables[name])


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_preset_is_complete_and_sourced(path):
    text, folder, name = path.read_text(encoding="utf-8"), path.parent.name, path.stem
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name)
    assert len(tomllib.loads(text)["title"]) > 3  # its own, not that of its base
    check_component(name, read(folder, name))
    preset_in_si(folder, name)  # refuses a component of another category, and numbers outside their range
    assert not re.search(r"[\s\"(~]/\w", text), "a path of some machine is no source"


@pytest.mark.parametrize("folder", DATA["required"])
def test_required_presets_exist(folder):
    assert set(names(folder)) >= set(DATA["required"][folder].split())
