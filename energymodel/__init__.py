"""Energy, time, money and carbon of training a large language model, and the best plan, by gradients.

`__init__.pyi` lists the public names. They load on first use, so that the command line answers before JAX is imported.
"""

from importlib.metadata import version

import lazy_loader

from energymodel.shown import shown_by

__version__ = version("energymodel")
shown_by("energymodel.report.notebook")  # imported when a result is first shown
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
