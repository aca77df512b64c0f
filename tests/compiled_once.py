"""Call a function or its derivative compiled for a single use: half the time where compiling is what a test does."""

import jax

from energymodel.runtime.compilation import compiler_options


def compiled_once(function, *args):
    return jax.jit(function, compiler_options=compiler_options(once=True))(*args)


def derivative_once(derivative, function, *args):
    """`derivative(function)(*args)` of a whole run, whose operations are not merged."""
    return jax.jit(derivative(function), compiler_options=compiler_options(once=True, unfused=True))(*args)
