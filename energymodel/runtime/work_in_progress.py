"""How does long work tell how far it is, without knowing who listens?

Compiled functions say which program they are making, searches how many of their candidates are done. A command that
draws a progress bar listens; without it nothing is heard and nothing is lost.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

_LISTENERS: list["Listener"] = []


@runtime_checkable
class Listener(Protocol):
    """Who wants to know; called from any thread."""

    def started(self, program: str) -> None:
        """A program is being made."""
        ...

    def finished(self, program: str, seconds: float) -> None:
        """It is made, or could not be."""
        ...

    def counted(self, done: int, total: int) -> None:
        """So many of the candidates of a search are done."""
        ...


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell a listener of all work in this block."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


@contextlib.contextmanager
def making(program: str) -> Iterator[None]:
    """Say that a program is traced, compiled or loaded in this block."""
    begun = time.perf_counter()
    for one in [*_LISTENERS]:
        one.started(program)
    try:
        yield
    finally:
        for one in [*_LISTENERS]:
            one.finished(program, time.perf_counter() - begun)


def counted(done: int, total: int) -> None:
    """Say how many candidates of a search are done."""
    for one in [*_LISTENERS]:
        one.counted(done, total)
