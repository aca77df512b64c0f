"""Which model shape and which hardware suit each other best?

`optimize_architecture` finds the shape of transformer and the plan that minimize the objective at a loss;
`annealing.anneal` searches a lattice of layouts by simulated or path-integral annealing, as a check of enumeration.
"""

from energymodel.codesign.architecture import optimize_architecture

__all__ = ["optimize_architecture"]
