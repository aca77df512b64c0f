"""Formulas of `energymodel` in accelerator kernels, each holding a whole formula.

Three kernels, each a package with one public function: `fused_sweep`, `batched_newton`, `ode_ensemble`. In each, `api`
picks an implementation, `reference` is the specification in plain JAX and what runs by default, `kernel` (or `by_lane`
and `by_program`) is written once for all backends, `tiles` cuts up the work, `shapes` lists what is tested and timed.
"""
