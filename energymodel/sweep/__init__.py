"""What happens over a huge grid of systems and plans? `energymodel.sweep(...)` is `energymodel.sweep.run.sweep`.

The package and its main function share a name, so that the package can be called.
"""

import sys
from types import ModuleType
from typing import Any


class _Sweep(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate a model on every point of a grid, see `energymodel.sweep.run.sweep`."""
        from energymodel.sweep.run import sweep

        return sweep(*args, **kwargs)


sys.modules[__name__].__class__ = _Sweep
