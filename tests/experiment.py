"""The stored results of an experiment, and its modules."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


class Experiment:
    """A folder under experiments/."""

    def __init__(self, name: str) -> None:
        self.folder = EXPERIMENTS / name

    def stated(self) -> Any:
        """What its `run.py` wrote the last time."""
        return json.loads((self.folder / "result.json").read_text(encoding="utf-8"))

    def module(self, name: str) -> ModuleType:
        """One of its modules."""
        return self.modules(name)[0]

    def modules(self, *names: str) -> list[ModuleType]:
        """Some of its modules. Other experiments may have modules of the same names, so none stays imported."""
        before = set(sys.modules)
        sys.path[:0] = [str(self.folder), str(EXPERIMENTS)]  # their figures are beside the folders
        try:
            return [importlib.import_module(name) for name in names]
        finally:
            sys.path.remove(str(self.folder))
            sys.path.remove(str(EXPERIMENTS))
            for other in set(sys.modules) - before:
                if (sys.modules[other].__dict__.get("__file__") or "").startswith(str(self.folder)):
                    del sys.modules[other]
