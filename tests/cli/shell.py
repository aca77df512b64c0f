"""How the tests run commands: in this process, with stdout and stderr apart."""

import csv
import json
from pathlib import Path
from typing import Any

import jsonschema
from typer.testing import CliRunner, Result

from energymodel.cli import app
from energymodel.report.schema import schema_of

SMALL = "test-1b-h100"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def run_json(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    tree = json.loads(result.stdout, parse_constant=_refuse)
    jsonschema.validate(tree, schema_of(tree["schema"]["name"].removeprefix("energymodel.")))
    return tree


def numbers(tree: dict[str, Any], table: str = "outcome", row: int = 0) -> dict[str, Any]:
    """Numbers of a row of a table of an answer's JSON, by column."""
    cells = tree["tables"][table]["rows"][row]
    return {name: cell["value"] if isinstance(cell, dict) else cell for name, cell in cells.items()}


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def refused_json(*arguments: str) -> dict[str, Any]:
    """The error in JSON of a command that refuses its arguments."""
    result = run(*arguments, "--json")
    tree = json.loads(result.stdout)
    assert result.exit_code == tree["exit_code"] == 2
    jsonschema.validate(tree, schema_of("error"))
    return tree


def assert_bad_input(arguments: list[str], *mentioned: str) -> None:
    """That a command refuses its arguments in one line that mentions these words."""
    result = run(*arguments)
    assert result.exit_code == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert result.stderr.startswith("energymodel: error: ")
    for word in mentioned:
        assert word in result.stderr
