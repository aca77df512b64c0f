"""Programs that leave part of their work to others: they are cut in two where they call them.

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

from energymodel.runtime.compilation import (
    Compiled,
    Lowered,
    Program,
    Signature,
    export_flat,
    read_lowered,
    write_lowered,
)
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
    inputs: Sequence[Any]
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
        carried, answers = leaves, []
        for program in self._made(signature):
            carried, asked = jax.tree.unflatten(program.structure, program.run(*carried, *answers))
            for returned, arrays in asked.items():  # none at the end
                answers = host(arrays, int(returned))
        return carried

    def _program(self, signature: Signature) -> tuple[Program, ...]:
        path = self._path(signature)
        parts = [] if path is None else _stored_parts(path)
        if not parts:
            parts = [self._lower(part) for part in self._parts(signature)]
            for index, part in enumerate(parts):
                if path is not None:
                    write_lowered(_part_path(path, index), part)
        return tuple(self._compile_kept(part) for part in parts)

    def _lower(self, part: _Part) -> Lowered:
        def between(*arrays: Any) -> list[Any]:
            values = {**part.constants, **dict(zip(part.inputs, arrays, strict=True))}
            _run(part.equations, values)
            return [_read(values, atom) for atom in part.made]

        between.__name__ = self._function.__name__
        shapes = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in part.inputs]
        return Lowered(export_flat(between, shapes), part.structure)

    def _parts(self, signature: Signature) -> list[_Part]:
        """The function cut at its host calls."""
        closed, structure = self._trace(signature, lambda flat, shapes: jax.make_jaxpr(flat)(*shapes))
        opened = jax.make_jaxpr(partial(_open, closed.jaxpr, closed.consts))(*signature.shapes)
        equations, results = opened.jaxpr.eqns, list(opened.jaxpr.outvars)
        constants = dict(zip(opened.jaxpr.constvars, opened.consts, strict=True))
        inputs, begin, parts = list(opened.jaxpr.invars), 0, []
        for index, call in enumerate(equations):
            if call.primitive.name != _HOST_CALL:
                continue
            reads = (atom for after in equations[index + 1 :] for atom in after.invars)
            later = {atom for atom in (*reads, *results) if not isinstance(atom, Literal)}
            available = [*inputs, *(atom for before in equations[begin:index] for atom in before.outvars)]
            carried = [atom for atom in dict.fromkeys(available) if atom in later]
            asked = {str(len(call.outvars)): [0] * len(call.invars)}
            shape = jax.tree.structure(([0] * len(carried), asked))
            parts.append(_Part(constants, equations[begin:index], inputs, [*carried, *call.invars], shape))
            inputs, begin = [*carried, *call.outvars], index + 1
        end = jax.tree.structure((jax.tree.unflatten(structure, [0] * len(results)), {}))
        return [*parts, _Part(constants, equations[begin:], inputs, results, end)]


def _part_path(path: Path, index: int) -> Path:
    return path.with_name(f"{path.name}-{index}")


def _stored_parts(path: Path) -> list[Lowered]:
    """The programs of a function, of which the last asks for nothing; none if one is missing."""
    parts: list[Lowered] = []
    for index in count():
        part = read_lowered(_part_path(path, index))
        if part is None:
            return []
        parts.append(part)
        if not jax.tree.unflatten(part.structure, [0] * part.structure.num_leaves)[1]:
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
            results = _open(called.jaxpr, called.consts, *reads)
        elif equation.primitive.name == "scan" and _has_host_call(parameters["jaxpr"].jaxpr):
            results = _unrolled(parameters, reads)
        else:
            results = equation.primitive.bind(*reads, **equation.primitive.get_bind_params(parameters))
            results = results if equation.primitive.multiple_results else [results]
        values.update(zip(equation.outvars, results, strict=True))


def _read(values: Mapping[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _has_host_call(jaxpr: Jaxpr) -> bool:
    return any(
        equation.primitive.name == _HOST_CALL
        or any(_has_host_call(inner.jaxpr) for inner in equation.params.values() if isinstance(inner, ClosedJaxpr))
        for equation in jaxpr.eqns
    )


def _unrolled(parameters: Mapping[str, Any], reads: Sequence[Any]) -> list[Any]:
    """What `lax.scan` returns, step by step."""
    body, length = parameters["jaxpr"], parameters["length"]
    fixed, carried = parameters["num_consts"], parameters["num_carry"]
    constants, carry, rows = reads[:fixed], reads[fixed : fixed + carried], reads[fixed + carried :]
    stacked: list[Any] = [None] * length
    for step in reversed(range(length)) if parameters["reverse"] else range(length):
        results = _open(body.jaxpr, body.consts, *constants, *carry, *(row[step] for row in rows))
        carry, stacked[step] = results[:carried], results[carried:]
    return [*carry, *(jnp.stack(leaves) for leaves in zip(*stacked, strict=True))]
