"""Signals: Ctrl-C ends a command within two seconds, whatever native code is running.

Compilers and long computations return to the interpreter only when they are finished, libraries swallow the exception
that Ctrl-C raises, and threads that still run can crash the interpreter while it ends. So on Linux a command runs in a
child process. This process imports nothing but the standard library and waits: it passes a signal on, gives the child
`GRACE` seconds, kills it, prints one line, and exits with 128 plus the number of the signal. If it is killed itself,
the child ends, too; if native code ends the child, as XLA does at an unknown flag, it says so. On other systems the
command runs in this process and ends as soon as native code returns.

In the child a signal ends the process at once, without the interpreter's cleaning up. Only where partial results can be
kept (`Keeping`) does it raise `KeyboardInterrupt`.
"""

# `signal` without its enumerations, whose import takes longer than all the rest here.
import _signal  # type: ignore[import-not-found]
import _thread
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # without `typing`, for the same reason
    from types import FrameType

ENDED = 128  # what a shell adds to the number of the signal that ended a command
INTERRUPTED, TERMINATED, BROKEN_PIPE = ENDED + _signal.SIGINT, ENDED + _signal.SIGTERM, ENDED + 13
GRACE = 1.3  # seconds in which a command may keep what it has
LAST = 0.3  # seconds of the kernel to remove a killed process; the output needs as long before
WORDS = {_signal.SIGINT: "interrupted", _signal.SIGTERM: "terminated"}
ENDED_IN_ORDER = b"\0"  # what the child's interpreter tells last
FLAGS = "XLA_FLAGS"
CLEAR = b"\r\x1b[K\x1b[?25h"  # a progress bar leaves the line, and a hidden cursor comes back


class _State:
    """What this process knows of its parent, and of a signal that came."""

    to_parent: "int | None" = None
    alone = False  # signals are handled here, and there is no parent
    keeps = False
    number = 0
    since = 0.0


def start() -> None:
    """Let Ctrl-C and SIGTERM end what follows; on Linux this returns in a child process only.

    A signal that this process was started to ignore, such as Ctrl-C in the background of a script, stays ignored.
    """
    for stream in range(3):  # what is opened next would take the place of a closed one
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    signals = [number for number in WORDS if _signal.getsignal(number) is not _signal.SIG_IGN]
    if sys.platform == "linux" and len(sys._current_frames()) == 1:  # other threads would not survive
        _start_child(signals)
    else:
        _State.alone = True
        _handle(signals)


class Keeping:
    """Raises `KeyboardInterrupt` at a signal in this context, whose caller keeps what is finished and then exits."""

    def __enter__(self) -> None:
        self._before, _State.keeps = _State.keeps, True

    def __exit__(self, *_: object) -> None:
        _State.keeps = self._before


def say_last(line: str) -> bool:
    """Let the parent print this line if a signal ends the command, "" for what was said before or the usual one.

    **Returns:** whether there is a parent, which prints nothing else.
    """
    if _State.to_parent is not None and line:
        os.write(_State.to_parent, line.encode(errors="backslashreplace") + b"\n")
    return _State.to_parent is not None


def exit_code(usual: int) -> int:
    """The exit code of a command that was interrupted, by the signal that came."""
    return ENDED + _State.number if _State.number else usual


def end_if_late() -> None:
    """End now if a signal came and too little time is left to print a whole result."""
    if _State.number and time.monotonic() - _State.since > GRACE - LAST:
        os._exit(ENDED + _State.number)


def _handle(signals: list[int]) -> None:
    for number in signals:
        _signal.signal(number, _on_signal)


def _on_signal(number: int, frame: "FrameType | None") -> None:
    if not _State.keeps:
        if _State.alone and not _State.number:
            _print_last(number, b"")
        os._exit(ENDED + number)
    if _State.number:  # the terminal and the parent may both send it
        return
    _State.number, _State.since = number, time.monotonic()
    if _State.to_parent is not None:  # which says all that is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    raise KeyboardInterrupt


def _start_child(signals: list[int]) -> None:
    """Fork; return in the child, and never in this process."""
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # where it is ignored, nobody learns how the child ended
    # Signals wait until each process is ready for them.
    waiting = {*signals, _signal.SIGCHLD}
    _signal.pthread_sigmask(_signal.SIG_BLOCK, waiting)
    heard, to_parent = os.pipe()
    alive, held_open = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    child = os.fork()
    if child:
        os.close(to_parent)
        os.close(alive)
        os._exit(_wait(child, signals, heard))  # `held_open` closes with this process, however it ends
    os.close(heard)
    os.close(held_open)
    _State.to_parent = to_parent
    import atexit

    atexit.register(os.write, to_parent, ENDED_IN_ORDER)
    _handle(signals)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, waiting)
    _thread.start_new_thread(_end_with_parent, (alive,))


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)  # returns when the last process that could write to it has ended
    os._exit(ENDED + _signal.SIGKILL)


def _wait(child: int, signals: list[int], heard: int) -> int:
    """Exit code of the child, or of the signal that ends it."""
    awaited, deadline, came, status = {*signals, _signal.SIGCHLD}, None, 0, 0
    while True:
        if deadline is None:
            signal = _signal.sigwaitinfo(awaited)
        else:
            signal = _signal.sigtimedwait(awaited, max(0.0, deadline - time.monotonic()))
        if signal is None:
            os.kill(child, _signal.SIGKILL)
            _signal.sigtimedwait({_signal.SIGCHLD}, LAST)
            break
        if signal.si_signo == _signal.SIGCHLD:
            ended, raw = os.waitpid(child, os.WNOHANG)
            if ended:  # and not only stopped
                status = os.waitstatus_to_exitcode(raw)  # negative for a signal
                break
        elif not came:
            came, deadline = signal.si_signo, time.monotonic() + GRACE
            os.kill(child, came)
    os.set_blocking(heard, False)
    try:
        words = os.read(heard, 1 << 16)
    except BlockingIOError:
        words = b""
    if came:
        _print_last(came, words.replace(ENDED_IN_ORDER, b""))
        return ENDED + came
    if status == 1 and not words.endswith(ENDED_IN_ORDER):
        flags = os.environ.get(FLAGS)
        cause = f"{FLAGS}={flags}: change or unset it." if flags else "please report this with the line above."
        _print(f"error: native code ended the command. {cause}")
        return 2 if flags else status
    if status < 0:
        _print(f"ended by signal {-status}{', perhaps for lack of memory' if -status == _signal.SIGKILL else ''}.")
        return ENDED - status
    return status


def _print_last(number: int, heard: bytes) -> None:
    """The one line of a command that a signal ended: the last that the command itself wants said, or the usual one."""
    word, lines = WORDS[number], heard.decode(errors="replace").splitlines()
    last = lines[-1] if lines else ""
    _print(f"{word}." if not last else last if last.startswith(word) else f"{word}: {last}")


def _print(line: str) -> None:
    import contextlib  # which takes too long before signals are handled

    with contextlib.suppress(OSError):  # nobody reads it
        message = f"energymodel: {line}\n".encode(errors="backslashreplace")
        os.write(2, (CLEAR if os.isatty(2) else b"") + message)
