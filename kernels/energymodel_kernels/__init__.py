"""How fast can the formulas of `energymodel` run when one accelerator kernel holds them all?

The fused kernels come with issue 3 of 5, "Sweeps and kernels". Until then the plain JAX functions of `energymodel` are
both specification and implementation, and this package only keeps the place.
"""
