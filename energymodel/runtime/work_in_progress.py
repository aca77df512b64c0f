"""Word of long work, for whoever listens: the programs that are made, and the candidates of a search that are done.

A command that draws a progress bar listens; without it nothing is heard and nothing is lost.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

LISTENERS: list[Any] = []
"""Objects with methods `started(program)`, `finished(program)` and `counted(done, total)`, called from any thread."""


@contextlib.contextmanager
def making(program: str) -> Iterator[None]:
    """Say that a program is traced, compiled or loaded in this block."""
    listeners = [*LISTENERS]
    for listener in listeners:
        listener.started(program)
    try:
        yield
    finally:
        for listener in listeners:
            listener.finished(program)


def counted(done: int, total: int) -> None:
    """Say how many candidates of a search are done."""
    for listener in [*LISTENERS]:
        listener.counted(done, total)
