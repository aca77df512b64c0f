"""How the tests run commands: in this process, with stdout and stderr apart."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from energymodel.cli import app

SMALL = "test-1b-h100"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def run_json(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
