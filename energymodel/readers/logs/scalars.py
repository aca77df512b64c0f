"""Quantities of a step that scalars of TensorBoard, Weights & Biases or a trainer name."""

import re
import tomllib
from pathlib import Path

EVALUATION = "evaluation"
"""The loss of an evaluation, in place of a field."""
TOTAL_RATE = "total_token_rate"
"""Tokens per second of the whole run, in place of a field."""
GROUPS = tomllib.loads((Path(__file__).parent / "scalars.toml").read_text("utf-8"))["groups"]
NAMES: dict[str, tuple[str, float] | None] = {
    name: (group["field"], group["factor"]) if group["field"] else None
    for group in GROUPS
    for name in group["names"].split()
}
_ASIDE = re.compile(r"vs_(?:samples|tokens|consumed)|(?:^|_)gradients?_|(?:^|_)parameters_")
_EVALUATED = re.compile(r"(?:^|_)(?:eval|evaluation|val|valid|validation|test)(?:_|$)")


def field_of(name: str) -> tuple[str, float] | None:
    """Field and factor of a scalar, told from the last words of its name; None if it is no quantity of a step."""
    words = re.sub(r"[^a-z0-9]+", "_", name[:500].lower()).strip("_").split("_")
    full = "_".join(words)
    if _ASIDE.search(full):
        return None
    for start in range(max(0, len(words) - 8), len(words)):
        tail = "_".join(words[start:])
        if tail in NAMES:
            field = NAMES[tail]
            if field is not None and _EVALUATED.search(full):
                return (EVALUATION, 1.0) if field[0] in ("loss", EVALUATION) else None
            return field
    return None
