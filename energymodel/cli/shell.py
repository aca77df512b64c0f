"""Commands that print an answer and write it to files: errors, warnings, exit codes."""

import contextlib
import dataclasses
import errno
import functools
import importlib.util
import inspect
import json
import os
import shlex
import sys
import tempfile
import warnings
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from energymodel.cli.options import expanded, flag, option
from energymodel.errors import InputError, described, one_line
from energymodel.runtime import process
from energymodel.runtime.cache_folder import JAX_COMPLAINS, what_jax_complains_of
from energymodel.runtime.private_folder import write_whole
from energymodel.runtime.process import BROKEN_PIPE, INTERRUPTED
from energymodel.runtime.progress import Progress

if TYPE_CHECKING:
    from energymodel.report.answer import Answer

TRUSTED, DEFECT, BAD_INPUT, NOT_TRUSTED = 0, 1, 2, 3
PAGE = ".html"
PAINTED = (".png", ".pdf")  # by matplotlib
EXTENSIONS = (".json", ".csv")
REPORTS = (*EXTENSIONS, PAGE, ".svg", *PAINTED)
WIDTH, FULL_WIDTH = 112, 150  # of tables where the output is no terminal, and of those in full
FIGURE_WIDTH = 720.0  # [px]
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a disk that takes no more of the output
ROOM = 1 << 17  # bytes that a disk must take before the work
DEVICES = ("cpu", "gpu")  # that a command may run on

Files = Mapping[str | Path, Callable[[], str]]
"""Texts of files of a command's own, by extension, or by path where an option of its own names it."""
ANSWERED = "an answer"
_TOLD: set[str] = set()  # by this command: an answer, notes, and of the cache, of which JAX warns for each program


def fail(message: str, code: int, word: str = "") -> int:
    """Write a line to stderr, with what it lists on lines of their own, and give the exit code back."""
    first, *listed = (one_line(" ".join(line.split())) for line in message.split("\n"))
    if code == INTERRUPTED:
        code = process.exit_code(code)
        if process.say_last(first if word else ""):
            return code
    print("\n  ".join((f"energymodel: {f'{word}: ' if word else ''}{first}", *listed)), file=sys.stderr)
    return code


def print_error(message: str, code: int, **about: Any) -> None:
    """Print an error as JSON, which stands where the answer would; `about` as in `errors.described`."""
    from energymodel.report.data import VERSION

    kind = "defect" if code == DEFECT else "bad input"
    head = {"schema": {"name": "energymodel.error", "version": VERSION}, "kind": kind, "exit_code": code}
    print(json.dumps({**head, **described(message, **about)}, indent=1, ensure_ascii=False))


def of_environment(error: Exception) -> str | None:
    """Which variable of the environment JAX refuses, and why; `None` for another error."""
    words = str(error)
    for name, value in os.environ.items():
        quoted = "backend" in words and any(f"'{part}'" in words for part in value.split(","))
        if name.startswith("JAX_") and (name in words or quoted):
            return f'{name}: JAX refuses "{value}": {words.partition(". (")[0].rstrip(".")}. Change or unset it.'
    return None


def _show_warning(usual: Callable[..., None], message: Any, category: Any, filename: str, *where: Any) -> None:
    """One line for a warning of ours, or of JAX about its cache; those of other libraries as usual."""
    if JAX_COMPLAINS in str(message):
        if (meant := what_jax_complains_of(str(message))) is not None and meant not in _TOLD:
            _TOLD.add(meant)
            fail(meant, TRUSTED, "warning")
    elif Path(filename).is_relative_to(Path(__file__).parents[1]):
        fail(str(message), TRUSTED, "warning")
    else:
        usual(message, category, filename, *where)


def note(sentence: str) -> None:
    """Write what a person should know, and need not act upon, to stderr; once, if it is said of several scenarios."""
    if sentence not in _TOLD:
        _TOLD.add(sentence)
        print(f"note: {one_line(sentence)}", file=sys.stderr)


def guarded(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command whose bad input, interruption and verdict become one line and an exit code."""
    command = expanded(command)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        _TOLD.clear()
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            try:
                code = command(*args, **kwargs)
                if sys.stdout is not None:
                    sys.stdout.flush()  # here, where it can be said that nobody reads it or that the disk is full
            except (ValueError, RuntimeError) as error:
                message = str(error) if isinstance(error, InputError) else of_environment(error)
                if message is None:
                    raise
                if kwargs.get("as_json") and ANSWERED not in _TOLD:
                    print_error(message, BAD_INPUT, **getattr(error, "about", {}))
                code = fail(message, BAD_INPUT, "error")
            except KeyboardInterrupt:
                code = fail("interrupted.", INTERRUPTED)
            except OSError as error:
                if isinstance(error, BrokenPipeError):  # as of `| head`, which has read enough
                    code = BROKEN_PIPE
                elif error.filename is None and error.errno in UNWRITTEN:
                    code = fail(f"the output cannot be written: {error.strerror}.", BAD_INPUT, "error")
                else:
                    raise
                with contextlib.suppress(OSError, ValueError):  # or the interpreter would complain when it ends
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # type: ignore[union-attr]
        if code:
            raise typer.Exit(code)

    # Typer reads parameters from the signature, so it has to be that of the command.
    run.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    return run


def placed(device: str | None, *, large: bool = False) -> contextlib.AbstractContextManager[Any]:
    """Run what follows on one of `DEVICES`; unless that is given, the CPU, and what is large where JAX would.

    Small programs take longer to compile for a GPU than they save. A process that needs none does not start any.

    **Raises:** `InputError` for another device, or where there is no GPU.
    """
    if device not in (None, *DEVICES):
        raise InputError(f'--device: "{device}" is no device. Choose one of {", ".join(DEVICES)}.')
    if device is None and (large or os.environ.get("JAX_PLATFORMS")):
        return contextlib.nullcontext()
    wanted = device or "cpu"
    if wanted == "cpu" and "jax" not in sys.modules:
        os.environ["JAX_PLATFORMS"] = "cpu"
        return contextlib.nullcontext()
    import jax

    try:
        return jax.default_device(None if jax.default_backend() == wanted else jax.devices(wanted)[0])
    except RuntimeError as error:
        raise InputError(f"--device: JAX finds no {wanted}: {error}. See `energymodel doctor`.") from error


@contextlib.contextmanager
def keeping(folder: Path | None = None) -> Iterator[None]:
    """Raise `KeyboardInterrupt` in work whose partial results are kept, perhaps in a folder from which it goes on."""
    if folder is not None:
        process.say_last(one_line(f"Finished tiles are kept in {folder}. Run the same command again to go on."))
    with process.Keeping():
        yield


def check_output(path: Path, extensions: Sequence[str]) -> None:
    """Check before the work that its result can be written, also that figures can be painted."""
    if path.suffix not in extensions:
        what = f'extension "{path.suffix}"' if path.suffix else "a file without extension"
        raise InputError(f"{path}: cannot write {what}. Choose one of {', '.join(extensions)}.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}. Make it first.")
    if path.is_dir():
        raise InputError(f"{path}: it is a folder. Name a file, such as {path / f'result{path.suffix}'}.")
    if path.is_file() or not path.exists():
        try:
            with tempfile.TemporaryFile(dir=path.resolve().parent) as trial:
                trial.write(bytes(ROOM))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}. Name another folder.") from None
    if path.suffix in PAINTED and importlib.util.find_spec("matplotlib") is None:
        raise InputError(f'{path}: figures need matplotlib. Install it: pip install "energymodel[plot]".')


def write(path: Path, content: bytes) -> None:
    """Write a file that a person asked for, whole or not at all; `InputError` if it cannot be written."""
    try:
        if path.is_file() or not path.exists():
            write_whole(path.resolve(), content)
        else:  # such as a pipe
            path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from None


@dataclasses.dataclass(frozen=True)
class Delivery:
    """What is wanted of an answer: `--json`, `-o` (repeatable), `--full` and `--open`."""

    as_json: bool = flag("Print JSON in SI.", "--json")
    output: list[Path] | None = option(
        f"Write the result as well: {', '.join(REPORTS)}; repeatable.", "FILE", None, *("-o", "--output", "--plot")
    )
    full: bool = flag("Show all tables and rows, and why numbers are assumed.")
    opened: bool = flag("Open the page that -o report.html writes in the browser.", "--open")

    @property
    def has_page(self) -> bool:
        """Whether a page is written."""
        return any(path.suffix == PAGE for path in self.output or ())

    @property
    def details(self) -> bool:
        """Whether what only pages and the full form show is wanted."""
        return self.full or self.has_page

    def check(self, *also: str) -> None:
        """Check before the work that its result can be written, and that there is a page where one is to be opened.

        - `also`: extensions of files that this command alone writes.
        """
        for path in self.output or ():
            check_output(path, (*also, *REPORTS))
        if self.opened and not self.has_page:
            raise InputError("--open shows a page, and none is written. Add -o report.html.")

    def deliver(self, answer: "Answer", files: Files | None = None, but: str = "", *, width: int = WIDTH) -> int:
        """Print the answer, write the files that were asked for, and give the exit code; arguments as of `write`."""
        from energymodel.report import data, terminal
        from energymodel.runtime.terminal import console

        try:
            self.write(answer, files, but)
        finally:  # also what could not be written was computed
            if self.as_json:
                print(data.dumps(answer))
                _TOLD.add(ANSWERED)
            else:
                process.end_if_late()
                console(FULL_WIDTH if self.full else width).print(terminal.terminal(answer, full=self.full), crop=False)
        if answer.result == "successful":
            return TRUSTED
        code = INTERRUPTED if answer.result == "interrupted" else NOT_TRUSTED
        return fail(answer.message, code, str(answer.result))

    def write(self, answer: "Answer", files: Files | None = None, but: str = "") -> None:
        """Write the files that were asked for, and open the page; `but`: extension of those that are written already.

        **Raises:** `InputError` if a file cannot be written, or where there is nothing to draw.
        """
        for path, text in (files or {}).items():
            if isinstance(path, Path):
                write(path, text().encode())
        for path in self.output or ():
            if path.suffix == but:
                continue
            own = (files or {}).get(path.suffix)
            write(path, _content(answer, path) if own is None else own().encode())
            if self.opened and path.suffix == PAGE:
                webbrowser.open(path.resolve().as_uri())


class Run(NamedTuple):
    """What a command works on, how it says how far it is, and what is wanted of its answer."""

    source: Any
    progress: Progress
    show: Delivery


_DEVICE = option(
    "Run on cpu or gpu; otherwise on the CPU, which small programs are faster on, and sweeps on a GPU if there is one.",
    "cpu|gpu",
)


def command(
    source: type, *, lines: bool = False, large: bool = False, width: int = WIDTH, writes: tuple[str, ...] = ()
) -> Any:
    """Make a command of a function of a `Run` and of options that returns an answer, perhaps with `Files`.

    - `source`: options that say what it works on; those of `Delivery` and `--device` come with them.
    - `lines`: whether progress is printed where there is no terminal.
    - `large`: whether it works on points enough for a GPU, in a precision of its own; others work in float64.
    - `width`: of tables where the output is no terminal.
    - `writes`: extensions of files of its own.
    """
    common = {"source": (source, None), "show": (Delivery, None), "device": (str | None, _DEVICE)}

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(source: Any, show: Delivery, device: str | None, **options: Any) -> int:
            show.check(*writes)
            with placed(device, large=large), Progress(lines=lines) as progress:
                import jax

                with contextlib.nullcontext() if large else jax.enable_x64(True):
                    answer = function(Run(source, progress, show), **options)
            return show.deliver(*(answer if isinstance(answer, tuple) else (answer,)), width=width)

        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        for name, (kind, default) in common.items():
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        return guarded(run)

    return decorate


def _content(answer: "Answer", path: Path) -> bytes:
    """The answer as a file of the kind that its name says."""
    from energymodel.report import data, drawing, page, painter

    if path.suffix == ".json":
        return f"{data.dumps(answer)}\n".encode()
    if path.suffix == ".csv":
        table = data.main_table(answer)
        has_name = table.name == "run" and not answer.rows
        return data.csv_text(table, str(answer.inputs.get("name", "")) if has_name else "").encode()
    if path.suffix == PAGE:
        return page.page_html(answer, shlex.join(["energymodel", *sys.argv[1:]])).encode()
    if path.suffix not in REPORTS:
        raise InputError(f"{path}: there is no plan to launch. Write -o result.json or result.csv.")
    if not answer.charts:
        raise InputError(f"{path}: there is nothing to draw. Write -o result.json or result.csv.")
    is_svg = path.suffix == ".svg"
    figure = drawing.svg(answer, answer.charts[0], FIGURE_WIDTH, heading=True, style=is_svg)
    return figure.encode() if is_svg else painter.picture(figure, path.suffix[1:])
