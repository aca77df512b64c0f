"""JSON schema of the answers of each command, and of errors."""

from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers.expressions import data_file
from energymodel.report.data import VERSION

KEYS = data_file(__file__, "schema.toml")
"""Tables of the answers of each command, and the unit of each of their columns; a table may have more columns."""
ERROR = "error"
_TEXT: dict[str, Any] = {"type": "string"}
_WORDS = {"type": ["string", "null"]}
_TEXTS = {"type": "array", "items": _TEXT}
_NUMBER = {"type": ["number", "null"]}


def _object(optional: dict[str, Any] | None = None, **required: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


_KNOWN = _object({"low": _NUMBER, "high": _NUMBER, "unit": _TEXT, "prior": _TEXT}, value=_NUMBER)
_FORMS = {
    "quantity": {
        "description": "A number, or one with its 90 % interval, its own unit, or why it is assumed.",
        "anyOf": [_NUMBER, _KNOWN],
    },
    "words": _WORDS,
    "cell": {"anyOf": [_KNOWN, {"type": ["number", "string", "null"]}]},
}


def _form(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _table(columns: dict[str, str]) -> dict[str, Any]:
    heads = {
        name: _object(unit=_TEXT if unit in ("", "text") else {"const": unit}, kind=_TEXT, title=_TEXT)
        for name, unit in columns.items()
    }
    cells = {name: _form({"text": "words", "": "cell"}.get(unit, "quantity")) for name, unit in columns.items()}
    rows = {"type": "object", "properties": cells, "additionalProperties": _form("cell")}
    return _object(title=_TEXT, columns={"type": "object", "properties": heads}, rows={"type": "array", "items": rows})


def schema_of(command: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the answers of a command, by its name, or of "error".

    **Raises:** `InputError` for a name that no command has.
    """
    commands = KEYS["commands"]
    if command != ERROR and command not in commands:
        raise InputError(f'Unknown command "{command}". {suggest(command, (*commands, ERROR))}')
    head = _object(name={"const": f"energymodel.{command}"}, version={"const": VERSION})
    if command == ERROR:
        about = dict.fromkeys(("thing", "unit", "next_step"), _WORDS)
        tree = _object(schema=head, kind=_TEXT, exit_code={"type": "integer"}, message=_TEXT, value=True, **about)
    else:
        tables = {name: _table(KEYS["tables"][name]) for name in commands[command]}
        texts = dict.fromkeys(("title", "result", "message", "headline"), _TEXT)
        lists = dict.fromkeys(("sentences", "notes", "warnings", "next"), _TEXTS)
        every = {"type": "object", "properties": tables, "additionalProperties": _table({})}
        tree = _object(schema=head, scenario={"type": "object"}, **texts, **lists, tables=every)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tree, "$defs": _FORMS}
