"""Search for malformed input that gives a traceback, a hang or a huge allocation.

Draws scenario files, run files, command lines and folders of sweeps that are wrong in every way that the generator
knows, from a seed. Each must be accepted or refused with one `InputError` of one line, within seconds. A command that
was accepted is stopped where it would compile a program.

Run `python benchmarks/fuzz/fuzz.py --count 50000 --seed 7`; exit code 1 means that some input was answered wrongly.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from malformed import Inputs
from malformed_words import SCENARIOS, TEXTS
from typer.testing import CliRunner

from energymodel.cli import app
from energymodel.cli.source import read_scenario
from energymodel.errors import InputError
from energymodel.report.toml_text import dumps
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.ledger import Ledger
from energymodel.sweeps.scenario_axes import scenario_axis

SLOWEST = 5.0  # [s] of processor time, which nothing that is refused may take
LONGEST_LINE = 3_000  # characters of a message


class Reached(BaseException):
    """The input was accepted: what follows is the work itself."""


class Fault(NamedTuple):
    """An input that was answered wrongly: what it was, and what came of it."""

    what: str
    answer: str


def read(inputs: Inputs, text: str, suffix: str, changes: list[str]) -> None:
    """Read a file as every command does, and use what it says as far as nothing is compiled."""
    path = inputs.folder / f"scenario{suffix}"
    path.write_text(text, encoding="utf-8", errors="replace")
    result = read_scenario(str(path), changes)
    result.with_question().check()
    again = inputs.folder / "again.toml"
    again.write_text(dumps(result.named_tables), encoding="utf-8")
    load_scenario(again)


def python(inputs: Inputs) -> None:
    """Call `load_scenario` and `with_question` as a program does, with objects of any kind."""
    objects = (
        *range(-1, 3),
        None,
        True,
        1.5,
        float("nan"),
        [],
        {},
        (),
        object(),
        np.arange(3),
        np.float32(2),
        b"x",
        Path("x"),
    )

    def anything() -> Any:
        return inputs.pick((inputs.plain, lambda: inputs.pick(objects), lambda: {inputs.pick(TEXTS): inputs.plain()}))()

    kind = inputs.random.randrange(3)
    if kind == 0:
        load_scenario(inputs.pick(SCENARIOS), {".".join(inputs.path()): anything() for _ in range(2)})
    elif kind == 1:
        load_scenario(anything())
    else:
        words = ("minimize", "limits", "vary", "fix", "tolerance")
        load_scenario(inputs.pick(SCENARIOS)).with_question(**{inputs.pick(words): anything()})


def axis(inputs: Inputs) -> None:
    """Parse an axis of a sweep."""
    path = ".".join(inputs.path()) if inputs.random.random() < 0.8 else inputs.pick(TEXTS)
    with stopped():
        scenario_axis(load_scenario(inputs.pick(SCENARIOS)), path, inputs.pick((*TEXTS, inputs.plain())))


def command_line(inputs: Inputs, arguments: list[str]) -> None:
    """Run a command up to where it would compile."""
    result = None
    with stopped(), contextlib.chdir(inputs.folder):
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    if result is None:
        return
    lines = result.stderr.strip().splitlines()
    if result.exit_code not in (0, 2):
        raise AssertionError(f"exit code {result.exit_code}: {result.stderr[:300]}")
    usage = any(line.startswith(("Usage:", "Error:")) for line in lines)
    errors = [line for line in lines if line.startswith("energymodel: error:")]
    if result.exit_code == 2 and not usage and (len(errors) != 1 or lines[-1] != errors[0]):
        raise AssertionError(f"not one line: {result.stderr[:300]}")


def ledger(inputs: Inputs) -> None:
    """Open the folder of a sweep in which something is of the wrong kind."""
    folder = Path(tempfile.mkdtemp(dir=inputs.folder))
    shapes = {"x": np.zeros(3)}
    names = ("run.json", "lock", "program", "tiles", "tiles/00000000.tile", "sweep.zarr", ".x.part")
    for name in inputs.random.sample(names, 2):
        path = folder / name
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            kind = inputs.random.randrange(6)
            if kind == 0:
                path.mkdir()
            elif kind == 1:
                path.symlink_to(inputs.pick(("none", str(folder), "/dev/null", name)))
            elif kind == 2:
                os.mkfifo(path)
            elif kind == 3:
                path.write_text(inputs.json_text())
            else:
                path.write_bytes(inputs.random.randbytes(inputs.random.randrange(200)))
    with Ledger(folder, {"checksum": "x"}, shapes) as opened:
        opened.finished(3)
        opened.read(0)
        opened.write(0, shapes)


@contextlib.contextmanager
def stopped() -> Iterator[None]:
    """Where the work itself would begin, `Reached` ends it."""

    def reached(*_: Any, **__: Any) -> Any:
        raise Reached

    with (
        mock.patch.object(Compiled, "__call__", reached),
        mock.patch.object(Compiled, "preload", reached),
        mock.patch.object(jax.stages.Lowered, "compile", reached),
        mock.patch("energymodel.sweeps.sweep.best_order", reached),
        mock.patch("energymodel.monitor.sources.followed", reached),
        contextlib.suppress(Reached),
    ):
        yield


def draw(inputs: Inputs) -> tuple[str, Callable[[], None]]:
    """A description of a random input, and what tries it."""
    kind = inputs.random.random()
    if kind < 0.40:
        text, changes = inputs.toml(), [inputs.change()] if inputs.random.random() < 0.1 else []
        return f"toml {changes}\n{text}", lambda: read(inputs, text, ".toml", changes)
    if kind < 0.52:
        text = inputs.json_text()
        return f"json\n{text}", lambda: read(inputs, text, ".json", [])
    state = inputs.random.getstate()

    def again(function: Callable[[Inputs], None]) -> Callable[[], None]:
        def run() -> None:
            inputs.random.setstate(state)
            function(inputs)

        return run

    if kind < 0.62:
        return "python", again(python)
    if kind < 0.72:
        return "axis", again(axis)
    if kind < 0.76:
        return "ledger", again(ledger)
    arguments = inputs.arguments()
    return f"command {arguments}", lambda: command_line(inputs, arguments)


def attempt(what: str, trial: Callable[[], None]) -> Fault | None:
    """Try an input."""
    start, answer = time.process_time(), ""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            trial()
    except InputError as error:
        text = str(error)
        if "\n" in text.strip() or len(text) > LONGEST_LINE:
            answer = f"message of {len(text)} characters: {text[:300]}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "energymodel" in frame.filename and "benchmarks" not in frame.filename]
        location = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
        answer = f"{type(error).__name__} at {location}: {str(error)[:200]}"
    if (took := time.process_time() - start) > SLOWEST:
        answer = f"{took:.1f} s; {answer}"
    return Fault(what, answer) if answer else None


def faults(count: int, seed: int, kinds: tuple[str, ...] = ("",)) -> list[Fault]:
    """Inputs that were answered wrongly, of so many."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(seed, Path(folder))
        inputs.complete("test-1b-h100")
        result = []
        for _ in range(count):
            what, trial = draw(inputs)
            if what.startswith(kinds) and (fault := attempt(what, trial)) is not None:
                result.append(fault)
        return result


def main() -> None:
    """Try random inputs, and print those that were answered wrongly."""
    parser = argparse.ArgumentParser(description="Try random malformed input.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="", help="beginning of the kind: toml, json, python, axis, ledger, command")
    arguments = parser.parse_args()
    start = time.perf_counter()
    result = faults(arguments.count, arguments.seed, (arguments.kinds,))
    places = Counter(fault.answer[:110] for fault in result)
    examples = {fault.answer[:110]: fault.what for fault in result}
    for answer, times in places.most_common():
        print(f"{times:6d}  {answer}\n        {examples[answer][-300:]!r}")
    print(f"{len(result)} of {arguments.count:,} inputs (seed {arguments.seed}) in {time.perf_counter() - start:.0f} s")
    sys.exit(bool(result))


if __name__ == "__main__":
    main()
