"""Tables of cases beside their tests."""

from pathlib import Path
from typing import Any

import yaml


def cases(file: str) -> dict[str, Any]:
    """Cases of a test file by test, of the YAML file of the same name."""
    return yaml.safe_load(Path(file).with_suffix(".yaml").read_text(encoding="utf-8"))
