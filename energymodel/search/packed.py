"""How does a program take hundreds of numbers at once? Beside each other in one array, with their structure."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Packed(eqx.Module):
    """A tree of numbers as one array, along its last axis; axes before that are those of all leaves.

    A call that hands over each number by itself takes longer than the program that it calls.
    """

    numbers: Float[Array | np.ndarray, "*lanes n"]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def tree(self) -> Any:
        """The tree, of one lane."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = [
            jnp.reshape(self.numbers[end - int(np.prod(shape)) : end], shape)
            for end, shape in zip(ends, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, parts)

    def take(self, lanes: Any) -> "Packed":
        """The trees of some lanes."""
        return Packed(self.numbers[lanes], self.structure, self.shapes)


def pack(tree: Any, lanes: int | None = None) -> Packed:
    """All numbers of a tree; of one whose leaves have a first axis of so many lanes, if that is given."""
    leaves, structure = jax.tree.flatten(tree)
    leading = () if lanes is None else (lanes,)
    leaves = [np.asarray(leaf, np.float64) for leaf in leaves]
    shapes = tuple(leaf.shape[len(leading) :] for leaf in leaves)
    flat = [leaf.reshape(*leading, -1) for leaf in leaves]
    return Packed(np.concatenate(flat, axis=-1), structure, shapes)
