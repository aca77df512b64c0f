"""How does a command speak to the shell: options, progress, errors, exit codes, files?"""

import contextlib
import errno
import functools
import importlib.util
import inspect
import os
import shlex
import sys
import warnings
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from energymodel.cli import process
from energymodel.cli.cache_folder import JAX_COMPLAINS, what_jax_complains_of
from energymodel.cli.options import expanded
from energymodel.cli.process import BROKEN_PIPE, INTERRUPTED
from energymodel.cli.progress import Progress as Progress
from energymodel.errors import InputError, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from energymodel.report.charts import AbstractChart
    from energymodel.report.page.document import Page

TRUSTED, DEFECT, BAD_INPUT, NOT_TRUSTED = 0, 1, 2, 3
PAGE = ".html"
PICTURES = (".svg", ".png", ".pdf")
EXTENSIONS = (".json", ".csv")
REPORTS = (*EXTENSIONS, PAGE, *PICTURES)
WIDTH = 112  # of tables where the output is no terminal
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a disk that takes no more of the output

_TOLD: set[str] = set()  # what was said of the cache, of which JAX warns for each program

Minimize = Annotated[
    str | None,
    typer.Option(
        "--minimize",
        metavar="OBJECTIVE",
        help="energy, time, money, carbon, etp, loss, or a product such as energy*time^2.",
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        help="Limit time, facility_power, money, carbon, loss, chips or any output; repeatable.",
    ),
]
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", metavar="PATH=LOW:HIGH", help="Let a number vary between bounds; repeatable."),
]
Tolerance = Annotated[
    str | None,
    typer.Option(
        "--tolerance",
        metavar="SHARE",
        help='Of plans this close to the best, take the one with the least energy, such as "0.5 %"; 0 for the best.',
    ),
]
Fix = Annotated[list[str] | None, typer.Option("--fix", metavar="PATH", help="Keep a number of the plan; repeatable.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in SI, with the unit in each key.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a figure (.svg, .png, .pdf).")]
Open = Annotated[bool, typer.Option("--open", help="Open the page that -o report.html writes in the browser.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help=f"Write the result as well: {', '.join(REPORTS)}.")
]
TableOutput = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help=f"Write the result as well: {', '.join(EXTENSIONS)}."),
]


def fail(message: str, code: int, word: str = "") -> int:
    """Write a line to stderr, with what it lists on lines of their own, and give the exit code back."""
    first, *listed = (one_line(" ".join(line.split())) for line in message.split("\n"))
    if code == INTERRUPTED:
        code = process.exit_code(code)
        if process.say_last(first if word else ""):
            return code
    print("\n  ".join((f"energymodel: {f'{word}: ' if word else ''}{first}", *listed)), file=sys.stderr)
    return code


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
    """Write what a person should know, and need not act upon, to stderr."""
    print(f"note: {one_line(sentence)}", file=sys.stderr)


def verdict(result: str, message: str) -> int:
    """Exit code of a search that ended so; unless it was successful, its message goes to stderr."""
    if result == "successful":
        return TRUSTED
    return fail(message, INTERRUPTED if result == "interrupted" else NOT_TRUSTED, result)


def guarded(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command whose bad input, interruption and verdict become one line and an exit code."""
    command = expanded(command)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            try:
                code = command(*args, **kwargs)
                if sys.stdout is not None:
                    sys.stdout.flush()  # here, where it can be said that nobody reads it or that the disk is full
            except InputError as error:
                code = fail(str(error), BAD_INPUT, "error")
            except KeyboardInterrupt:
                code = fail("interrupted.", INTERRUPTED)
            except BrokenPipeError:  # as of `| head`, which has read enough
                code = BROKEN_PIPE
                _write_nowhere()
            except OSError as error:
                if error.filename is not None or error.errno not in UNWRITTEN:
                    raise
                code = fail(f"the output cannot be written: {error.strerror}.", BAD_INPUT, "error")
                _write_nowhere()
        if code:
            raise typer.Exit(code)

    # Typer reads parameters from the signature, so it has to be that of the command.
    run.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    return run


def float64() -> contextlib.AbstractContextManager[None]:
    """Work in float64; imports JAX."""
    import jax

    return jax.enable_x64(True)


def _write_nowhere() -> None:
    """Let what is still to be written to stdout vanish, or the interpreter would complain when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def keeping(folder: Path | None = None) -> Iterator[None]:
    """Raise `KeyboardInterrupt` in work whose partial results are kept, perhaps in a folder from which it goes on."""
    if folder is not None:
        process.say_last(one_line(f"Finished tiles are kept in {folder}. Run the same command again to go on."))
    with process.Keeping():
        yield


def check_outputs(output: Path | None, plot: Path | None) -> None:
    """Check before the work that its tables and its figure can be written."""
    check_output(output)
    check_output(plot, PICTURES)


def check_output(path: Path | None, extensions: Sequence[str] = EXTENSIONS) -> None:
    """Check before the work that its result can be written, also that figures can be drawn.

    **Raises:** `InputError` that names the extensions.
    """
    if path is None:
        return
    if path.suffix not in extensions:
        shown = f'extension "{path.suffix}"' if path.suffix else "a file without extension"
        raise InputError(f"{path}: cannot write {shown}. Choose one of {', '.join(extensions)}.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}. Make it first.")
    if path.suffix in PICTURES and importlib.util.find_spec("matplotlib") is None:
        raise InputError(f'{path}: figures need matplotlib. Install it: pip install "energymodel[plot]".')


def check_report(path: Path | None, *, opened: bool, extensions: Sequence[str] = REPORTS) -> None:
    """Check before the work that its result can be written, and that there is a page where one is to be opened.

    **Raises:** `InputError`.
    """
    check_output(path, extensions)
    if opened and (path is None or path.suffix != PAGE):
        raise InputError("--open shows a page, and none is written. Add -o report.html.")


def command_line() -> str:
    """The command as it was typed, for a page that says how to repeat it."""
    return shlex.join(["energymodel", *sys.argv[1:]])


def written(page: "Page", output: Path, *, opened: bool) -> None:
    """Write a page, and open it in the browser if that was asked for.

    **Raises:** `InputError` if it cannot be written.
    """
    from energymodel.report.page.document import page_html

    write(output, page_html(page).encode())
    if opened:
        webbrowser.open(output.resolve().as_uri())


def picture(chart: "AbstractChart", suffix: str) -> bytes:
    """A chart as `.svg`, `.png` or `.pdf`."""
    from energymodel.report import painter

    is_svg = suffix == ".svg"
    svg = chart.svg(heading=True, style=is_svg)
    return svg.encode() if is_svg else painter.picture(svg, suffix[1:])


def deliver(
    tree: Mapping[str, Any],
    report: "RenderableType",
    *,
    as_json: bool,
    output: Path | None,
    content: bytes | None = None,
    rows: Callable[[], str] | None = None,
    plot: Path | None = None,
    figure: Callable[[str], bytes] | None = None,
    page: "Callable[[], Page] | None" = None,
    chart: "Callable[[], AbstractChart] | None" = None,
    opened: bool = False,
    width: int = WIDTH,
) -> None:
    """Print a table or JSON, and write the files that were asked for.

    The output is the `page`, the `chart` as a picture, `content`, the `rows` as CSV, or else the tree as JSON or one
    CSV row; the plot is the `figure` of its kind, "svg", "png" or "pdf". Pages and charts are made only when written.

    **Raises:** `InputError` if a file cannot be written.
    """
    from energymodel.cli.terminal import console
    from energymodel.report import json_tree

    if output is not None and output.suffix == PAGE and page is not None:
        written(page(), output, opened=opened)
    elif output is not None:
        if content is None and output.suffix in PICTURES and chart is not None:
            content = picture(chart(), output.suffix)
        if content is None:
            as_csv = output.suffix == ".csv"
            text = (rows() if rows else json_tree.csv_row(tree)) if as_csv else json_tree.dumps(tree) + "\n"
            content = text.encode()
        write(output, content)
    if plot is not None and figure is not None:
        write(plot, figure(plot.suffix[1:]))
    if as_json:
        print(json_tree.dumps(tree))
        return
    process.end_if_late()
    console(width).print(report, crop=False)


def write(path: Path, content: bytes) -> None:
    """Write a file that a person asked for.

    **Raises:** `InputError` if it cannot be written.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from None
