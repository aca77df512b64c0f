"""How is a large model compiled in seconds, and only once on a machine?"""

import contextlib
import hashlib
import logging
import os
import pickle
import platform
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.experimental import serialize_executable

CONFIG: Any = jax.config  # its stub leaves out its settings
PACKAGE = __name__.partition(".")[0]
REMEMBERED = 64  # programs of one function that stay in memory
DIGEST_SIZE = 32
_SHORT = 16
_LOG = logging.getLogger(__name__)


def compiler_options(*, once: bool = False) -> Any:
    """Options for `jax.jit` of a whole training run.

    XLA's fusion emitters for CPU double the time to compile the thousands of scalar operations of a run and its
    derivatives, and save a third of the milliseconds that a run takes (`benchmarks/compile_time.py`): they are left out
    on CPU. `once` also leaves out the optimization of machine code, for a function that runs for a shorter time than
    that takes.
    """
    if jax.default_backend() != "cpu":
        return None
    return {"xla_cpu_use_fusion_emitters": False} | ({"xla_backend_optimization_level": 0} if once else {})


class Form(NamedTuple):
    """All that a program depends on: the shapes of what is traced, and everything else."""

    traced: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    static: Any
    fixed: tuple[Any, ...]
    x64: bool

    def arguments(self, leaves: Sequence[Any]) -> Any:
        """The arguments of the function that hold these numbers."""
        traced = jax.tree.unflatten(self.traced, leaves)
        return eqx.combine(traced, jax.tree.unflatten(self.static, self.fixed))


class Program(NamedTuple):
    """A compiled function of flat arrays, and a tree of numbers in the shape of what it returns."""

    run: jax.stages.Compiled
    like: Any


class Compiled:
    """A function from the host, compiled with the options of a whole run, which JAX's cache folder keeps ready to run.

    JAX keeps compiled programs between processes, but each process traces and lowers the Python code anew to find
    them, which takes a large model longer than to load them (`benchmarks/second_run.py`). So they are kept once more
    under a key that needs no tracing: the source of this package, the versions of JAX, the machine, and the form of
    the arguments.

    What JAX loads from its own cache instead of compiling it cannot be kept: XLA leaves the machine code out when it
    serializes such a program again. So programs to be kept get a name of their own, which that cache does not know.

    Numbers and arrays among the arguments are traced; all else (functions, text) is part of the form and must be
    hashable. Functions from outside this package may change without notice, so their programs are not kept.

    - `function`: a function at the top level of a module.
    - `once`: compile for a single use, see `compiler_options`.
    """

    def __init__(self, function: Callable[..., Any], *, once: bool = False) -> None:
        self._function = function
        self._once = once
        self._programs: dict[Any, Program] = {}
        self._foreseen: tuple[Path, Program | None] | None = None
        self.traced = False
        """Whether it was traced once, or need not be because a program was kept."""
        self._lock = Lock()

    def __call__(self, *args: Any) -> Any:
        """Call the function; the result holds JAX arrays."""
        traced, static = eqx.partition(args, eqx.is_array_like)
        leaves, structure = jax.tree.flatten(traced)
        leaves = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in leaves]
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        fixed, static_structure = jax.tree.flatten(static)
        form = Form(structure, shapes, static_structure, tuple(fixed), CONFIG.jax_enable_x64)
        with self._lock:  # threads that need the same program wait for one of them to make it
            program = self._programs.get(form)
            if program is None:
                if len(self._programs) >= REMEMBERED:
                    del self._programs[next(iter(self._programs))]
                program = self._programs[form] = self._load(form)
        return jax.tree.unflatten(jax.tree.structure(program.like), program.run(*leaves))

    @property
    def unused(self) -> bool:
        """Whether this process has not called it yet."""
        return not self._programs

    def foresee(self) -> None:
        """Load the program that was used last, which the next call is likely to need, while something else is done."""
        with self._lock:
            folder = CONFIG.jax_compilation_cache_dir
            if folder and not self._programs:
                kept = list(Path(folder).glob(f"{self._prefix()}-*"))
                path = max(kept, key=_last_use, default=None)
                self.traced = self.traced or path is not None  # before the file is read, which takes long
                self._foreseen = None if path is None else (path, _kept(path))

    def _load(self, form: Form) -> Program:
        path = self._path(form)
        foreseen, self._foreseen = self._foreseen, None
        if path is None:
            return self._compile(form, self._function.__name__)
        program = foreseen[1] if foreseen is not None and foreseen[0] == path else _kept(path)
        if program is None:
            program = self._compile(form, f"{self._function.__name__}_{uuid.uuid4().hex}")
            _keep(path, program)
        self.traced = True
        return program

    def _prefix(self) -> str:
        """Beginning of the names of all files of this function, as long as nothing that it is made of changes."""
        return f"{PACKAGE}-{self._function.__name__}-{source_digest()[:_SHORT]}"

    def _path(self, form: Form) -> Path | None:
        """Where the program is kept, if it may be."""
        names = [_name(one) for one in (self._function, *form.fixed)]
        folder = CONFIG.jax_compilation_cache_dir
        if not folder or None in names:
            return None
        devices = [device.device_kind for device in jax.devices()]
        flags = os.environ.get("XLA_FLAGS", "")
        machine = (platform.machine(), _instructions(), jax.default_backend(), devices, flags)
        key = repr((names, str(form.traced), str(form.static), form.shapes, form.x64, machine, source_digest()))
        return Path(folder) / f"{self._prefix()}-{hashlib.sha256(key.encode()).hexdigest()}"

    def _compile(self, form: Form, name: str) -> Program:
        structures: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            results, like = jax.tree.flatten(self._function(*form.arguments(leaves)))
            structures.append(like)
            return results

        flat.__name__ = name
        lowered = jax.jit(flat, compiler_options=compiler_options(once=self._once)).lower(*form.shapes)
        self.traced = True
        return Program(lowered.compile(), jax.tree.unflatten(structures[-1], range(structures[-1].num_leaves)))


def concurrently(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`[function(item) for item in items]` on as many threads as there are cores, in the caller's precision.

    XLA for CPU runs a program of many small operations on one core.
    """
    x64 = CONFIG.jax_enable_x64

    def call(item: Any) -> Any:
        with jax.enable_x64(x64):  # a thread starts with the default
            return function(item)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(call, items))


def _name(static: Any) -> str | None:
    """What stands for a static argument in the key of a kept program; `None` if its meaning may change unseen."""
    if isinstance(static, str | int | float | bool):
        return repr(static)
    described = static if isinstance(static, FunctionType) else type(static)
    ours = described.__module__.partition(".")[0] == PACKAGE and "<locals>" not in described.__qualname__
    if not ours:
        return None
    return f"{static.__module__}.{static.__qualname__}" if isinstance(static, FunctionType) else repr(static)


@cache
def source_digest() -> str:
    """Digest of this package's source and of the versions of what traces it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    for library in ("jax", "jaxlib", "equinox", "optimistix", "lineax", "diffrax"):
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()


@cache
def _instructions() -> str:
    """Which instructions the processor has: machines of several kinds may share a home."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _kept(path: Path) -> Program | None:
    """The program that `_keep` wrote, unless it is missing, was cut short or does not run here."""
    try:
        content = path.read_bytes()
        os.utime(path)  # `Compiled.foresee` looks for the last use
    except OSError:
        return None
    digest, packed = content[:DIGEST_SIZE], content[DIGEST_SIZE:]
    if hashlib.sha256(packed).digest() != digest:
        return None
    _meet_lapack()
    try:
        like, parts = pickle.loads(zlib.decompress(packed))
        return Program(serialize_executable.deserialize_and_load(*parts), like)
    except Exception as error:  # whatever is wrong with it, it can be made again
        _LOG.warning("%s cannot be loaded and is made again: %s", path, error)
        return None


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process has just removed it
        return 0.0


@cache
def _meet_lapack() -> None:
    """Have JAX tell XLA where LAPACK's functions are, which it does when it lowers one, not when it loads a program."""
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float32))


def _keep(path: Path, program: Program) -> None:
    """Write at once or not at all: processes may share the folder, and a program that is not kept only costs time."""
    try:
        parts = serialize_executable.serialize(program.run)
    except (ValueError, RuntimeError) as error:  # JAX cannot serialize every program
        _LOG.warning("%s cannot be kept: %s", path, error)
        return
    packed = zlib.compress(pickle.dumps((program.like, parts)), level=1)
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / path.name
        whole.write_bytes(hashlib.sha256(packed).digest() + packed)
        whole.replace(path)
