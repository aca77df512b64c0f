"""The stored results of an experiment, and its modules."""

import importlib
import json
import sys
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


class Experiment:
    """A folder under experiments/, whose modules are attributes."""

    def __init__(self, name: str) -> None:
        self.folder = EXPERIMENTS / name
        self._modules: dict[str, ModuleType] = {}

    @cached_property
    def stored(self) -> Any:
        """What its `run.py` wrote the last time."""
        return json.loads((self.folder / "result.json").read_text(encoding="utf-8"))

    def __getattr__(self, name: str) -> ModuleType:
        """Import a module. Other experiments may have modules of the same names, so none stays in `sys.modules`."""
        if name.startswith("_"):
            raise AttributeError(name)
        before = set(sys.modules)
        sys.modules.update(self._modules)
        sys.path[:0] = [str(self.folder), str(EXPERIMENTS)]  # their figures are beside the folders
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(self.folder))
            sys.path.remove(str(EXPERIMENTS))
            for other in set(sys.modules) - before:
                if (sys.modules[other].__dict__.get("__file__") or "").startswith(str(self.folder)):
                    self._modules[other] = sys.modules.pop(other)


def assert_rows(computed: Any, stated: Any, rtol: float, atol: float = 1e-6, where: str = "", only: Any = None) -> None:
    """Rows have the numbers of those that are stated, and otherwise the same entries; `only` selects keys."""
    for row, expected in zip(computed, stated, strict=True):
        for key in (entry for entry in expected if only is None or only(entry)):
            if isinstance(expected[key], float):
                np.testing.assert_allclose(row[key], expected[key], rtol=rtol, atol=atol, err_msg=f"{where} {key}")
            elif only is None:
                assert row.get(key) == expected[key], f"{where} {key}"
