"""The calls of `docs/agents.md`: each answer obeys its schema and has the keys that the page names."""

import json
import re
import shlex
from functools import reduce

import jsonschema
import pytest

from cli.shell import run
from energymodel.report.schema import schema_of
from test_repository import ROOT

CALLS = re.findall(
    r"```sh\nenergymodel (.+?)\n```\n\n((?:- .+\n)+)", (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
)
CODES = {"successful": 0, "infeasible": 3, "bad input": 2}


@pytest.mark.parametrize(
    ("line", "keys"), [pytest.param(*call, marks=[pytest.mark.slow] * call[0].startswith("optimize")) for call in CALLS]
)
def test_calls_of_the_page_for_agents(line, keys, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = run(*shlex.split(line))
    tree = json.loads(result.stdout)
    assert result.exit_code == CODES[tree.get("result") or tree["kind"]]
    jsonschema.validate(tree, schema_of(tree["schema"]["name"].removeprefix("energymodel.")))
    for path, says in re.findall(r"- `(.+?)`: (.+)", keys):
        value = reduce(lambda branch, key: branch[int(key) if key.isdigit() else key], path.split("."), tree)
        assert value is not None
        if stated := re.match(r'"([^"]*)"\.?$|([\d.]+)\b', says):
            assert str(value).startswith(next(filter(None, stated.groups())).rstrip("."))


def test_the_page_has_five_calls():
    assert len(CALLS) == 5
