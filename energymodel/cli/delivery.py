"""Commands that print an answer and write it to files."""

import dataclasses
import functools
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from energymodel.cli import shell
from energymodel.cli.options import flag, option
from energymodel.errors import InputError
from energymodel.runtime import process
from energymodel.runtime.progress import Progress

if TYPE_CHECKING:
    from energymodel.report.answer import Answer

WIDTH = 720.0  # of figures [px]
FULL_WIDTH = 150  # of tables in full, where the output is no terminal


@dataclasses.dataclass(frozen=True)
class Delivery:
    """`--json`, `-o` (repeatable), `--full` and `--open`; a command has one parameter of this type."""

    as_json: bool = flag("Print JSON in SI.", "--json")
    output: list[Path] | None = option(
        f"Write the result as well: {', '.join(shell.REPORTS)}; repeatable.",
        "FILE",
        None,
        *("-o", "--output", "--plot"),
    )
    full: bool = flag("Show all tables and rows, and why numbers are assumed.")
    opened: bool = flag("Open the page that -o report.html writes in the browser.", "--open")

    @property
    def details(self) -> bool:
        """Whether what only pages and the full form show is wanted."""
        return self.full or any(path.suffix == shell.PAGE for path in self.output or ())

    def check(self, *also: str) -> None:
        """Check before the work that its result can be written, and that there is a page where one is to be opened.

        - `also`: extensions of files that this command alone writes.

        **Raises:** `InputError`.
        """
        for path in self.output or ():
            shell.check_output(path, (*also, *shell.REPORTS))
        if self.opened and not any(path.suffix == shell.PAGE for path in self.output or ()):
            raise InputError("--open shows a page, and none is written. Add -o report.html.")

    def deliver(
        self,
        answer: "Answer",
        files: Mapping[str, Callable[[], str]] | None = None,
        but: str = "",
        *,
        width: int = shell.WIDTH,
    ) -> int:
        """Print the answer, write the files that were asked for, and give the exit code; arguments as of `write`."""
        from energymodel.report import data, terminal
        from energymodel.runtime.terminal import console

        self.write(answer, files, but)
        if self.as_json:
            print(data.dumps(answer))
        else:
            process.end_if_late()
            console(FULL_WIDTH if self.full else width).print(terminal.terminal(answer, full=self.full), crop=False)
        return shell.verdict(answer.result, answer.message)

    def write(self, answer: "Answer", files: Mapping[str, Callable[[], str]] | None = None, but: str = "") -> None:
        """Write the files that were asked for, and open the page.

        - `files`: texts of files of this command's own, by extension; `but`: extension of those that it has written.

        **Raises:** `InputError` if a file cannot be written, or where there is nothing to draw.
        """
        for path in self.output or ():
            if path.suffix == but:
                continue
            own = (files or {}).get(path.suffix)
            shell.write(path, content(answer, path) if own is None else own().encode())
            if self.opened and path.suffix == shell.PAGE:
                webbrowser.open(path.resolve().as_uri())


def command(*, lines: bool = False, width: int = shell.WIDTH, writes: tuple[str, ...] = ()) -> Any:
    """Make a command of a function that returns an answer, perhaps with texts of files of its own by extension.

    The function has a parameter `show`, a `Delivery`, and one that is called `progress`.

    - `lines`: whether progress is printed where there is no terminal.
    - `width`: of tables where the output is no terminal.
    - `writes`: extensions of files of its own.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**options: Any) -> int:
            show: Delivery = options["show"]
            show.check(*writes)
            with Progress(lines=lines) as progress:
                answer = function(progress=progress, **options)
            return show.deliver(*(answer if isinstance(answer, tuple) else (answer,)), width=width)

        return shell.guarded(run)

    return decorate


def content(answer: "Answer", path: Path) -> bytes:
    """The answer as a file of the kind that its name says.

    **Raises:** `InputError` where there is nothing to draw.
    """
    from energymodel.report import data, drawing, page, painter

    if path.suffix == ".json":
        return f"{data.dumps(answer)}\n".encode()
    if path.suffix == ".csv":
        name = str(answer.inputs.get("name", "")) if not answer.rows else ""
        table = data.main_table(answer)
        return data.csv_text(table, name if table.name == "run" else "").encode()
    if path.suffix == shell.PAGE:
        return page.page_html(answer, shell.command_line()).encode()
    if not answer.charts:
        raise InputError(f"{path}: there is nothing to draw. Write -o result.json or result.csv.")
    is_svg = path.suffix == ".svg"
    figure = drawing.svg(answer, answer.charts[0], WIDTH, heading=True, style=is_svg)
    return figure.encode() if is_svg else painter.picture(figure, path.suffix[1:])
