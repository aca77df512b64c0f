"""How does a compiled program leave part of its work to other programs? It is cut in two where it calls them.

A search that holds a large model takes as long to compile as several models. Where its steps call the model by
`host_call` instead, they are small programs, and the model is a program of its own that everything else shares.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from energymodel.runtime.compilation import Compiled, Kept, Program, Signature, export_flat, read_kept, write_kept
from energymodel.runtime.operations import CALLS

Host = Callable[[Sequence[jax.Array], int], Sequence[Any]]
"""Answers a host call, given its arrays and the number of arrays that it returns."""
_HOST_CALL = "pure_callback"


def host_call(shapes: Sequence[jax.ShapeDtypeStruct], *arrays: Any) -> list[Any]:
    """Arrays of these shapes that the caller of a `CutProgram` makes of others; under `vmap` all have its axes first.

    **Raises:** `RuntimeError` where it runs outside a `CutProgram`.
    """
    return jax.pure_callback(_refuse, list(shapes), *arrays, vmap_method="broadcast_all")


def _refuse(*_: Any) -> Any:
    raise RuntimeError("A host call is answered by the caller of a CutProgram. Do not run it elsewhere.")


class _Part(NamedTuple):
    """Equations between two host calls, with what they are given and what they make."""

    constants: Mapping[Any, Any]
    equations: Sequence[Any]
    given: Sequence[Any]
    made: Sequence[Any]
    structure: Any


class CutProgram(Compiled):
    """A function with host calls, as programs between them that are compiled and kept as those of `Compiled` are.

    Host calls may stand in called functions, under `vmap` and in `lax.scan`, not in other loops or in branches.
    """

    def __call__(self, *args: Any) -> Any:
        """Call the function with all but the first argument, a `Host`, which answers its calls in order."""
        host: Host = args[0]
        leaves, signature = self._signature(args[1:])
        kept, answers = leaves, []
        for program in self._made(signature):
            kept, asked = jax.tree.unflatten(program.structure, program.run(*kept, *answers))
            for returned, arrays in asked.items():  # none at the end
                answers = host(arrays, int(returned))
        return kept

    def _program(self, signature: Signature) -> tuple[Program, ...]:
        path = self._path(signature)
        parts = [] if path is None else _kept_parts(path)
        if not parts:
            parts = [self._lower(part) for part in self._parts(signature)]
            for place, part in enumerate(parts):
                if path is not None:
                    write_kept(_part_path(path, place), part)
        return tuple(self._compile_kept(part) for part in parts)

    def _lower(self, part: _Part) -> Kept:
        def between(*arrays: Any) -> list[Any]:
            values = {**part.constants, **dict(zip(part.given, arrays, strict=True))}
            _run(part.equations, values)
            return [_read(values, atom) for atom in part.made]

        between.__name__ = self._function.__name__
        shapes = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in part.given]
        return Kept(export_flat(between, shapes), part.structure)

    def _parts(self, signature: Signature) -> list[_Part]:
        """The function cut at its host calls."""
        closed, structure = self._trace(signature, lambda flat, shapes: jax.make_jaxpr(flat)(*shapes))
        opened = jax.make_jaxpr(partial(_open, closed.jaxpr, closed.consts))(*signature.shapes)
        equations, results = opened.jaxpr.eqns, list(opened.jaxpr.outvars)
        constants = dict(zip(opened.jaxpr.constvars, opened.consts, strict=True))
        given, begin, parts = list(opened.jaxpr.invars), 0, []
        for place, call in enumerate(equations):
            if call.primitive.name != _HOST_CALL:
                continue
            reads = (one for after in equations[place + 1 :] for one in after.invars)
            later = {one for one in (*reads, *results) if not isinstance(one, Literal)}
            known = [*given, *(one for before in equations[begin:place] for one in before.outvars)]
            carried = [one for one in dict.fromkeys(known) if one in later]
            asked = {str(len(call.outvars)): [0] * len(call.invars)}
            shape = jax.tree.structure(([0] * len(carried), asked))
            parts.append(_Part(constants, equations[begin:place], given, [*carried, *call.invars], shape))
            given, begin = [*carried, *call.outvars], place + 1
        end = jax.tree.structure((jax.tree.unflatten(structure, [0] * len(results)), {}))
        return [*parts, _Part(constants, equations[begin:], given, results, end)]


def _part_path(path: Path, place: int) -> Path:
    return path.with_name(f"{path.name}-{place}")


def _kept_parts(path: Path) -> list[Kept]:
    """The programs of a function, of which the last asks for nothing; none if one is missing."""
    parts: list[Kept] = []
    for place in count():
        kept = read_kept(_part_path(path, place))
        if kept is None:
            return []
        parts.append(kept)
        if not jax.tree.unflatten(kept.structure, [0] * kept.structure.num_leaves)[1]:
            return parts
    return []


def _open(jaxpr: Jaxpr, constants: Sequence[Any], *arguments: Any) -> list[Any]:
    """Evaluate a function with its calls, and its loops over host calls, written out."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments), strict=True))
    _run(jaxpr.eqns, values)
    return [_read(values, atom) for atom in jaxpr.outvars]


def _run(equations: Sequence[Any], values: dict[Any, Any]) -> None:
    """Evaluate equations, and keep what they write."""
    for equation in equations:
        reads, parameters = [_read(values, atom) for atom in equation.invars], equation.params
        called = parameters.get(CALLS.get(equation.primitive.name, ""))
        if isinstance(called, ClosedJaxpr):
            found = _open(called.jaxpr, called.consts, *reads)
        elif equation.primitive.name == "scan" and _has_host_call(parameters["jaxpr"].jaxpr):
            found = _unrolled(parameters, reads)
        else:
            found = equation.primitive.bind(*reads, **equation.primitive.get_bind_params(parameters))
            found = found if equation.primitive.multiple_results else [found]
        values.update(zip(equation.outvars, found, strict=True))


def _read(values: Mapping[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _has_host_call(jaxpr: Jaxpr) -> bool:
    inner = (one for equation in jaxpr.eqns for one in equation.params.values() if isinstance(one, ClosedJaxpr))
    return any(one.primitive.name == _HOST_CALL for one in jaxpr.eqns) or any(
        _has_host_call(one.jaxpr) for one in inner
    )


def _unrolled(parameters: Mapping[str, Any], reads: Sequence[Any]) -> list[Any]:
    """What `lax.scan` returns, step by step."""
    body, length = parameters["jaxpr"], parameters["length"]
    fixed, carried = parameters["num_consts"], parameters["num_carry"]
    constants, carry, rows = reads[:fixed], reads[fixed : fixed + carried], reads[fixed + carried :]
    stacked: list[Any] = [None] * length
    for step in reversed(range(length)) if parameters["reverse"] else range(length):
        found = _open(body.jaxpr, body.consts, *constants, *carry, *(row[step] for row in rows))
        carry, stacked[step] = found[:carried], found[carried:]
    return [*carry, *(jnp.stack(leaves) for leaves in zip(*stacked, strict=True))]
