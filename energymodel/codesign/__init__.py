"""Which model shape and which hardware suit each other best?

`optimize_architecture` finds the shape of transformer and the plan that minimize the objective at a loss.
"""

from energymodel.codesign.architecture import optimize_architecture

__all__ = ["optimize_architecture"]
