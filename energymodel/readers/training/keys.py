"""Keys of a file from anywhere, read under their types, and which of them were not read.

Whatever is written where a number, a switch or a word is needed ends in one `InputError`; what was never read and may
change the run is listed by `unread`.
"""

import math
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers.expressions import data_file

MOST = 10**15  # largest count that is believed; beyond lie slips of the keyboard
LONGEST_TEXT = 1000  # characters of a value that are looked through
LONGEST = 60  # characters of a value that a message quotes
SWITCHES = {**dict.fromkeys(("true", "yes", "on", "1"), True), **dict.fromkeys(("false", "no", "off", "0", ""), False)}
PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*|<[A-Za-z_][\w .-]*>|CONFIG_[A-Z_]+|\{\{.*\}\}")


class Keys:
    """The keys of a file; those of the tables in it by their path, such as `model.hidden_size`.

    A method takes several names of one key, separated by blanks, and reads the first that has a value.

    **Arguments:**

    - `table`: from key to value.
    - `where`: the file, for messages.
    - `prefix`: path of the table in the file, with a dot at its end, for messages.
    """

    def __init__(self, table: Mapping[Any, Any], where: str, prefix: str = ""):
        self.values: dict[str, Any] = {str(key): value for key, value in table.items()}
        self.where = where
        self.prefix = prefix
        self.read: set[str] = set()

    def path(self, key: str) -> str:
        """The key with the tables that it lies in, after the file in quotes."""
        return f'"{self.where}": {self.prefix}{key}'

    def get(self, path: str) -> Any:
        """The value of a key, None if it or a table above it is missing; it does not count as read."""
        inner: Mapping[str, Any] = self.values
        *tables, last = path.split(".")
        for depth, name in enumerate(tables, 1):
            below = inner.get(name)
            if below is None:
                return None
            if not isinstance(below, Mapping):
                raise self.refuse(".".join(tables[:depth]), below, "a table of keys")
            inner = below
        return inner.get(last)

    def is_stated(self, path: str) -> bool:
        """Whether a key stands in the file, also as null."""
        above, _, last = path.rpartition(".")
        inner = at(self.values, above) if above else self.values
        return isinstance(inner, Mapping) and last in inner

    def has(self, names: str) -> bool:
        """Whether one of the names has a value."""
        return any(self.get(name) is not None for name in names.split())

    def raw(self, names: str) -> Any:
        """The value of the first of several names that has one."""
        values = [self.get(name) for name in names.split()]
        self.read.update(names.split())
        return next((value for value in values if value is not None), None)

    def refuse(self, names: str, value: Any, needed: str) -> InputError:
        """The error for a value that is not what the key needs."""
        path, text = self.present(names), quoted(value)
        if isinstance(value, str) and value.strip().lower() == "auto":
            return InputError(f'{path} is "auto", which the framework fills in at launch; write {needed} in its place.')
        if isinstance(value, str) and PLACEHOLDER.search(value[:LONGEST_TEXT]):
            return InputError(f"{path} is the placeholder {text}; write {needed} in its place.")
        return InputError(f"{path} is {text}; it must be {needed}.")

    def count(self, names: str, lowest: int = 1, highest: int = MOST) -> int | None:
        """A count from `lowest` to `highest`, None where the key is missing or null."""
        value = self.raw(names)
        number = _as_number(value)
        if value is not None and (number is None or number != math.floor(number) or not lowest <= number <= highest):
            raise self.refuse(names, value, f"a whole number from {lowest} to {highest:g}")
        return None if number is None else int(number)

    def number(self, names: str, lowest: float = 0.0, highest: float = MOST) -> float | None:
        """A number from `lowest` to `highest`, None where the key is missing or null."""
        value = self.raw(names)
        number = _as_number(value)
        if value is not None and (number is None or not lowest <= number <= highest):
            raise self.refuse(names, value, f"a number from {lowest:g} to {highest:g}")
        return None if number is None else float(number)

    def flag(self, names: str) -> bool | None:
        """A switch, true or false."""
        value = self.raw(names)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).strip().lower() if isinstance(value, str | int) else "?"
        if word not in SWITCHES:
            raise self.refuse(names, value, "true or false")
        return SWITCHES[word]

    def on(self, *switches: str) -> bool:
        """Whether one of several switches is on."""
        return True in [self.flag(names) for names in switches]

    def word(self, names: str, choices: Collection[str] = ()) -> str | None:
        """A text, one of the choices if there are any; None where it is missing, null or empty."""
        value = self.raw(names)
        if value is None or value == "":
            return None
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise self.refuse(names, value, "a text")
        text = str(value).strip()
        if PLACEHOLDER.search(text[:LONGEST_TEXT]):
            raise self.refuse(names, text, "its value")
        if choices and text not in choices:
            raise InputError(f"{self.present(names)} is {quoted(text)}, which is not known. {suggest(text, choices)}")
        return text

    def words(self, names: str) -> tuple[str, ...]:
        """A list of texts; one text stands for a list of one."""
        value = self.raw(names)
        if value is None or value == "":
            return ()
        if isinstance(value, str):
            return tuple(part.strip(" \"'[]") for part in value.split(",") if part.strip(" \"'[]"))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse(names, value, "a list of texts")
        return tuple(value)

    def unread(self) -> tuple[str, ...]:
        """Keys that were not read, whose value is not off or empty and whose name is not harmless."""
        unread: list[str] = []
        waiting: list[tuple[str, Any]] = list(self.values.items())
        while waiting:
            path, value = waiting.pop()
            if path in self.read or path.startswith("#") or is_harmless(f"{self.prefix}{path}"):
                continue
            if isinstance(value, Mapping):
                waiting.extend((f"{path}.{key}", item) for key, item in value.items())
            elif value not in (None, False, "", 0) and value != []:
                unread.append(shorten(f"{self.prefix}{path}"))
        return tuple(sorted(unread))

    def present(self, names: str) -> str:
        """The path of the first of several names that has a value."""
        return self.path(next((name for name in names.split() if self.get(name) is not None), names.split()[0]))


@cache
def _harmless() -> re.Pattern[str]:
    patterns = "|".join(data_file(__file__, "harmless.toml")["patterns"])
    return re.compile(rf"(^|[._])({patterns})($|[._])", re.IGNORECASE)


def is_harmless(path: str) -> bool:
    """Whether a key changes neither what is computed nor how it is divided, by its name."""
    return _harmless().search(path[:200].replace("-", "_")) is not None


def quoted(value: Any) -> str:
    """A value as a message quotes it: one line of bounded length."""
    if isinstance(value, Mapping):
        return f"a table of {len(value)} keys"
    if isinstance(value, list | tuple | set):
        return f"a list of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST:
        return f"{'-' if value < 0 else ''}a number beyond 1e15"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return shorten(" ".join(text.split()))


def table_of(value: Any, where: str, name: str, needed: str = "a table of keys") -> Mapping[str, Any]:
    """A value that must be a table.

    **Raises:** `InputError` that names the file, the key and what it holds.
    """
    if not isinstance(value, Mapping):
        raise InputError(f'"{where}": {name} is {quoted(value)}; it must be {needed}.')
    return value


def at(value: Any, path: str) -> Any:
    """The value at a dotted path of tables; None where there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def shorten(text: str) -> str:
    """A text of bounded length."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def flat(table: Mapping[Any, Any]) -> dict[str, Any]:
    """Keys of a table and of the tables in it, each under its own name; what is written later wins."""
    merged: dict[str, Any] = {}
    for key, value in table.items():
        merged |= flat(value) if isinstance(value, Mapping) else {str(key): value}
    return merged


def _as_number(value: Any) -> float | int | None:
    """The number that a value or its text is; None for what is none, NaN and infinity among it."""
    if isinstance(value, str):
        try:
            value = float(value.replace("_", "").strip()) if len(value) <= 40 else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None
