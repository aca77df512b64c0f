"""Compiled functions of a whole model: traced and compiled in seconds, and only once on a machine.

JAX's cache keeps compiled programs between processes, but a process must trace and lower the Python code to find them,
which takes a large model longer than to load them (`benchmarks/second_run.py` prints the ratio). So lowered programs
are kept beside them in the format of `jax.export`, which holds no Python objects and runs nothing when it is read.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, wraps
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from energymodel.runtime.lowered_programs import PACKAGE, Lowered, package_of, read_lowered, write_lowered
from energymodel.runtime.operations import KEEP_BARRIERS, with_barriers
from energymodel.runtime.placement import accelerated, for_threads, platform
from energymodel.runtime.private_folder import why_not_private
from energymodel.runtime.work_in_progress import making

CONFIG: Any = jax.config  # its stub leaves out its settings
VECTOR_BITS = 512
UNFUSED = {"xla_disable_hlo_passes": "fusion"}
IN_MEMORY = 64  # programs of one function
PROGRAMS = 32  # of one kind that `cached` keeps
_SHORT = 16
_UNTRACED: Any = get_opaque_trace_state()  # what holds where nothing is differentiated, batched or compiled
_LASTING = (PACKAGE, "builtins", "collections", "equinox", "jax", "jaxlib", "numpy")  # whose classes a tree may hold
_REFUSED: set[str] = set()  # reasons that were told
_LOG = logging.getLogger(__name__)


def compiler_options(*, once: bool = False, tile: bool = False) -> dict[str, Any]:
    """Options for `jax.jit` of a whole training run, those that this JAX has.

    On CPU, XLA's fusion emitters double the time to compile the thousands of scalar operations of a run and its
    derivatives, and save a third of the milliseconds that a run takes (`benchmarks/compile_time.py`): they are off.
    Barriers of `with_barriers` stay.

    **Arguments:**

    - `once`: also turn off the optimization of machine code, for a program that runs for less time than that takes, and
      for the model at hundreds of points, which it makes hardly faster. A tile keeps it.
    - `tile`: for long loops over cached data: fusion emitters stay unless `once`, and vectors are as wide as the
      processor has. XLA prefers half of them on processors with AVX-512 (`benchmarks/sweep`).
    """
    if accelerated():
        return {}
    options: dict[str, Any] = dict(KEEP_BARRIERS)
    if once or not tile:
        options["xla_cpu_use_fusion_emitters"] = False
    if tile:
        options["xla_cpu_prefer_vector_width"] = VECTOR_BITS
    elif once:
        options["xla_backend_optimization_level"] = 0
    return dict(_accepted(tuple(options.items())))


@cache
def _accepted(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Those options of the compiler that this JAX has; one compilation where it has all."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except jax.errors.JaxRuntimeError:
        return tuple(part for option in options for part in _accepted((option,))) if len(options) > 1 else ()
    return options


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` for functions of a whole training run, whose derivatives it compiles several times as fast on CPU.

    It asks XLA to merge no operations into kernels: what several kernels read would be computed anew in each, which
    makes the program of a derivative several times as long. `benchmarks/compile_time.py` prints the ratio for a
    gradient by all numbers of a run. Results differ by rounding.

    ```python
    slopes = em.jit(jax.grad(lambda plan: em.evaluate(system, plan).money))(plan)
    ```

    Without derivatives, `jax.jit` compiles sooner. Numbers that it holds instead of taking them as arguments, as the
    system here, compile faster: where they are 0 or 1, nothing of the parts that they switch off is in the program.
    Within another `jax.jit` or a derivative it is `jax.jit`.

    **Arguments:**

    - `function`: of arrays and trees of arrays; what else it needs it holds itself.

    **Returns:** the compiled function.
    """
    complete = jax.jit(function, compiler_options={} if accelerated() else UNFUSED)
    nested = jax.jit(function)  # whose options are those of the program around it

    @wraps(function)
    def compiled(*arguments: Any, **keywords: Any) -> Any:
        is_whole = get_opaque_trace_state() == _UNTRACED
        return (complete if is_whole else nested)(*arguments, **keywords)

    return compiled


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


class Signature(NamedTuple):
    """All that a program depends on: the arguments but for their numbers, the shapes of these, and what was set."""

    arguments: Split
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    x64: bool
    platform: str


class Program(NamedTuple):
    """A compiled function of flat arrays, and the structure of what it returns."""

    run: jax.stages.Compiled
    structure: Any


class Compiled:
    """A function called from the host, compiled with the options of a whole run and kept between processes.

    Its key needs no tracing: the source of this package, the versions of JAX, the signature of the call. Numbers and
    arrays among the arguments are traced; all else (functions, text) belongs to the signature and must be hashable.
    Functions and classes from outside this package may change without notice, so their programs are not kept.

    - `function`: a function at the top level of a module.
    - `once`: compile for a single use, see `compiler_options`.
    """

    def __init__(self, function: Callable[..., Any], *, once: bool = False) -> None:
        self._function = function
        self._once = once
        self._programs: dict[Signature, Any] = {}
        self._preloaded: tuple[Path, Program] | None = None
        self.traced = False
        """Whether it was traced once, or need not be because a program was kept."""
        self._lock = Lock()

    def __call__(self, *args: Any) -> Any:
        """Call the function; the result holds JAX arrays."""
        leaves, signature = self._signature(args)
        program = self._made(signature)
        return jax.tree.unflatten(program.structure, program.run(*leaves))

    def of_numbers(self, *args: Any) -> tuple[Callable[[Sequence[Any]], list[Any]], Any]:
        """The function from the numbers of its arguments to those of its result, and the structure of the result.

        For many calls with other numbers in the same arguments: to take trees apart and to put them together takes
        several times as long as a program runs. Numbers are in the order of `jax.tree.leaves`; their shapes and
        precision stay those of `args`.
        """
        _, signature = self._signature(args)
        program = self._made(signature)
        return lambda numbers: program.run(*numbers), program.structure

    def _signature(self, args: tuple[Any, ...]) -> tuple[list[Any], Signature]:
        """The numbers of a call, and what its program depends on."""
        leaves, arguments = split(args, eqx.is_array_like)
        # Copies, as in `numerics.with_own_numbers`.
        leaves = [leaf if isinstance(leaf, jax.Array) else np.array(leaf) for leaf in leaves]
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves)
        return leaves, Signature(arguments, shapes, CONFIG.jax_enable_x64, platform())

    def _made(self, signature: Signature) -> Any:
        """What runs calls of this signature, made once."""
        with self._lock:  # threads that need the same program wait for one of them to make it
            program = self._programs.get(signature)
            if program is None:
                if len(self._programs) >= IN_MEMORY:
                    del self._programs[next(iter(self._programs))]
                with making(self._function.__name__):
                    program = self._programs[signature] = self._program(signature)
        return program

    @property
    def unused(self) -> bool:
        """Whether this process has not called it yet."""
        return not self._programs

    def preload(self) -> None:
        """Load the program that was used last, which the next call is likely to need, while something else is done."""
        with self._lock:
            folder = _folder()
            if folder is not None and not self._programs:
                path = max(folder.glob(f"{self._prefix()}-*"), key=_last_use, default=None)
                self.traced = self.traced or path is not None  # before the file is read, which takes long
                stored = None if path is None else read_lowered(path)
                self._preloaded = None if path is None or stored is None else (path, self._compile_kept(stored))

    def _program(self, signature: Signature) -> Any:
        path = self._path(signature)
        preloaded, self._preloaded = self._preloaded, None
        if preloaded is not None and preloaded[0] == path:
            return preloaded[1]
        if path is None:
            return Program(*self._trace(signature, lambda flat, shapes: self._compile(with_barriers(flat), shapes)))
        stored = read_lowered(path)
        if stored is None:
            stored = Lowered(*self._trace(signature, export_flat))
            write_lowered(path, stored)
        self.traced = True
        return self._compile_kept(stored)

    def _trace(self, signature: Signature, make: Callable[..., Any]) -> tuple[Any, Any]:
        """What `make` makes of the function of flat arrays, and the structure of its result."""
        structures = []

        def flat(*leaves: Any) -> list[Any]:
            results, structure = jax.tree.flatten(self._function(*signature.arguments.joined(leaves)))
            structures.append(structure)
            return results

        flat.__name__ = self._function.__name__
        made = make(flat, signature.shapes)
        return made, structures[-1]

    def _compile_kept(self, stored: Lowered) -> Program:
        return Program(self._compile(stored.lowered.call, stored.lowered.in_avals), stored.structure)

    def _compile(self, function: Callable[..., Any], shapes: Sequence[Any]) -> jax.stages.Compiled:
        program = jax.jit(function, compiler_options=compiler_options(once=self._once)).lower(*shapes)
        self.traced = True
        return program.compile()

    def _prefix(self) -> str:
        """Beginning of the names of all files of this function, as long as nothing that it is made of changes."""
        return f"{PACKAGE}-{self._function.__name__}-{source_digest()[:_SHORT]}"

    def _path(self, signature: Signature) -> Path | None:
        """Where the program is kept, if it may be."""
        structure, fixed = signature.arguments
        names = [_name(self._function), *("number" if part is None else _name(part[1]) for part in fixed)]
        folder = _folder()
        if folder is None or None in names or not _lasting(structure):
            return None
        key = repr((names, str(structure), signature.shapes, signature.x64)) + signature.platform + source_digest()
        return folder / f"{self._prefix()}-{hashlib.sha256(key.encode()).hexdigest()}"


def concurrently(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`[function(item) for item in items]` on as many threads as there are cores, in the caller's precision.

    XLA for CPU runs a program of many small operations on one core.
    """
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(for_threads(function), items))


def _name(static: Any) -> str | None:
    """What stands for a static argument in the key of a kept program; `None` if its meaning may change unseen."""
    if isinstance(static, str | int | float | bool):
        return repr(static)
    described = static if isinstance(static, FunctionType) else type(static)
    ours = package_of(described) == PACKAGE and "<locals>" not in described.__qualname__
    parts = [getattr(static, field.name) for field in fields(static)] if is_dataclass(static) else []
    if not ours or any(_name(part) is None for part in jax.tree.leaves(parts)):
        return None
    return f"{static.__module__}.{static.__qualname__}" if isinstance(static, FunctionType) else repr(static)


def _lasting(structure: Any) -> bool:
    """Whether a change of any class that a tree is made of would change the key of a kept program."""
    node = structure.node_data()
    lasting = node is None or package_of(node[0]) in _LASTING
    return lasting and all(map(_lasting, structure.children()))


def _folder() -> Path | None:
    """The folder that JAX keeps compiled programs in, unless others could put programs there."""
    folder = CONFIG.jax_compilation_cache_dir
    if not folder:
        return None
    reason = why_not_private(Path(folder))
    if reason is not None and reason not in _REFUSED:
        _REFUSED.add(reason)
        _LOG.warning("programs are neither read from %s nor kept there: %s", folder, reason)
    return None if reason else Path(folder)


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process has just removed it
        return 0.0


def export_flat(function: Callable[..., list[Any]], shapes: Sequence[Any]) -> jax.export.Exported:
    """A function of flat arrays, lowered in the form in which it is kept."""
    chosen = None if accelerated() else ("cpu",)
    return jax.export.export(jax.jit(with_barriers(function)), platforms=chosen)(*shapes)


@cache
def source_digest() -> str:
    """Digest of this package's source and of the versions of what traces it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    for library in ("jax", "jaxlib", "equinox", "diffrax"):
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()
