"""Call a function compiled for a single use: half the time where compiling is what a test does."""

import jax

from energymodel.compilation import compiler_options


def compiled_once(function, *args):
    return jax.jit(function, compiler_options=compiler_options(once=True))(*args)
