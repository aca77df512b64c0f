"""Programs that are compiled once for all calls of the same structure."""

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import jax

PROGRAMS = 32
"""Programs of one kind that a process keeps."""


class Split(NamedTuple):
    """A tree without its arguments: its structure, and type and value of every other leaf."""

    structure: Any
    fixed: tuple[Any, ...]

    def joined(self, arguments: Sequence[Any]) -> Any:
        """The tree with these arguments."""
        own = iter(arguments)
        return jax.tree.unflatten(self.structure, [next(own) if part is None else part[1] for part in self.fixed])


def split(tree: Any, is_argument: Callable[[Any], bool]) -> tuple[list[Any], Split]:
    """The leaves of a tree that are arguments of a program, and the rest of it, on which the program depends."""
    leaves, structure = jax.tree.flatten(tree)
    chosen = [is_argument(leaf) for leaf in leaves]
    fixed = (None if own else (type(leaf), leaf) for own, leaf in zip(chosen, leaves, strict=True))
    return [leaf for own, leaf in zip(chosen, leaves, strict=True) if own], Split(structure, tuple(fixed))


def cached(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose last results are kept, by arguments; those that cannot be hashed are computed anew."""
    remembered = lru_cache(PROGRAMS)(make)

    @wraps(make)
    def call(*arguments: Any) -> Any:
        try:
            hash(arguments)
        except TypeError:
            return make(*arguments)
        return remembered(*arguments)

    return call
