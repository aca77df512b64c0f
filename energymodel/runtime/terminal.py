"""Text on a terminal: what names, titles and files hold is printed and never obeyed.

`guard_streams` escapes all that is printed to stdout and stderr, `console` what is in a table. Colors and the like come
from this project alone. What an encoding lacks is an escape as in JSON, and what is printed to a closed stream is lost.
"""

import codecs
import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from energymodel.errors import LAYOUT, escape, printable

if TYPE_CHECKING:
    from rich.console import Console


ESCAPED = "energymodel-escaped"


class GuardedStream:
    """A text stream that escapes what a terminal would obey; everything else is as in the stream below."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text, and say how many characters of it."""
        self.stream.write(printable(text, LAYOUT))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines that have their ends."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard_streams() -> None:
    """Escape what is printed from here on, by whatever library."""
    codecs.register_error(ESCAPED, _escaped)
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name) or io.StringIO()  # what is printed to a closed one is lost
        if not isinstance(stream, GuardedStream):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors=ESCAPED)
            setattr(sys, name, GuardedStream(stream))


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks, as escapes of JSON."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(escape, error.object[error.start : error.end])), error.end


def console(width: int | None = None, *, stderr: bool = False) -> "Console":
    """A console of rich on stdout, as wide as the terminal or else as stated, or on stderr.

    Its text is escaped before it is styled, and where nobody reads it the command ends by `BrokenPipeError`.
    """
    from rich.console import Console  # which takes long
    from rich.segment import Segment

    class GuardedConsole(Console):
        def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
            for text, style, control in super().render(*args, **options):
                yield Segment(text if control else printable(text, LAYOUT), style, control)

        def on_broken_pipe(self) -> NoReturn:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    below = stream.stream if isinstance(stream, GuardedStream) else stream
    return GuardedConsole(file=below, width=None if below.isatty() else width, highlight=False)
