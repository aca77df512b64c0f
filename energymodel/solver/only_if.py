"""How is work left out that no lane of a batch needs?"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def only_if(needed: Bool[Array, ""], work: Callable[..., Any], otherwise: Any, *inputs: Any) -> Any:
    """`work(*inputs)` where it is needed, else `otherwise`, of the same shapes.

    Under `vmap` a branch computes both sides for all lanes; a loop of at most one turn computes nothing if no lane
    needs it. XLA moves out of a loop what does not change in it, so `inputs` are arrays that all costly work starts
    from.
    """

    def turn(carry: Any) -> Any:
        going = carry[0]
        changing = jax.tree.map(lambda leaf: jnp.where(going, leaf, jnp.zeros_like(leaf)), inputs)
        return jnp.zeros((), bool), work(*changing)

    return jax.lax.while_loop(lambda carry: carry[0], turn, (needed, otherwise))[1]
