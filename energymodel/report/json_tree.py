"""Strict JSON and CSV of commands that have no answer yet, and the tree of an outcome."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx

from energymodel.report.data import strict
from energymodel.report.fields import outcome_fields, total
from energymodel.system.outcome import DERIVED, TrainingOutcome

Tree = dict[str, Any]


def outcome_json(outcome: TrainingOutcome) -> Tree:
    """Outputs by the keys of their metadata; energy and slack are flat tables, the total of energy first."""
    nested: dict[str, Any] = {
        "step_time": total(outcome.step_time),
        "energy": {"total": total(outcome.energy), **_flat(outcome.energy)},
        "slack": _flat(outcome.slack),
    }
    scalars = {field.name: field for field in outcome_fields(outcome)}
    tree: Tree = {}
    for name, declared in type(outcome).__dataclass_fields__.items():
        tree[declared.metadata["key"]] = scalars[name].value if name in scalars else nested[name]
        if name == "step_time":
            tree["step_time_terms_s"] = _flat(outcome.step_time)
    return tree | {scalars[name].key: scalars[name].value for name in DERIVED}


def dumps(tree: Mapping[str, Any]) -> str:
    """Strict JSON: what is not finite is null, and `warnings` says where and why."""
    clean, dropped = strict(tree)
    warnings = list(clean.get("warnings", []))
    warnings += [f"{path} is {value} and stands as null" for path, value in dropped]
    return json.dumps({**clean, "warnings": warnings}, indent=2, ensure_ascii=False, allow_nan=False)


def csv_row(tree: Mapping[str, Any]) -> str:
    """One header and one row: columns are the dotted keys of the JSON, the scenario only by its name."""
    scenario = tree.get("scenario", {})
    rest = {key: value for key, value in tree.items() if key != "scenario"}
    columns = {"scenario": scenario.get("name", ""), **_columns(strict(rest)[0])}
    return csv_text([columns, columns.values()])


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Lines of CSV; what is missing stays empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(["" if cell is None else cell for cell in row] for row in rows)
    return text.getvalue()


def _columns(tree: Any, path: str = "") -> Tree:
    if isinstance(tree, Mapping):
        pairs = [(f"{path}.{key}" if path else str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list):
        pairs = [(f"{path}[{index}]", value) for index, value in enumerate(tree)]
    else:
        return {path: tree}
    return {key: value for where, part in pairs for key, value in _columns(part, where).items()}


def _flat(component: eqx.Module) -> Tree:
    return {field.key: field.value for field in outcome_fields(component)}
