"""How are tables printed whose names and titles come from files? Apart from `terminal`: importing rich takes long."""

from collections.abc import Iterable
from typing import NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from energymodel.errors import LAYOUT, printable


class GuardedConsole(Console):
    """A console whose text is escaped before it is styled, and that tells when nobody reads it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render into segments that a terminal can show."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, LAYOUT), style, control)

    def on_broken_pipe(self) -> NoReturn:
        """Let the command end."""
        raise BrokenPipeError
