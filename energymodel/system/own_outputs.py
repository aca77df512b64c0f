"""Outputs that a user defines: numbers made of the outcome of a run, to be minimized or limited like any other."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from energymodel.errors import InputError
from energymodel.system.outcome import TrainingOutcome

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*$")

OutputFunction = Callable[[TrainingOutcome], Any]


class OwnOutput(NamedTuple):
    """An output of a user: its name, its unit, and what makes it from an outcome."""

    name: str
    unit: str
    function: OutputFunction


_KNOWN: dict[str, OwnOutput] = {}  # none is ever replaced: a name means the same in all that was compiled


def own_output(function: OutputFunction, unit: str = "1", name: str | None = None) -> str:
    """Make a function of the outcome an output that may be minimized or limited by its name.

    ```python
    per_token = own_output(lambda outcome: outcome.money / outcome.tokens, "USD/token", "price_of_token")
    energymodel.optimize("llama-3.1-405b-h100", minimize=per_token, limits={"time": "90 days"})
    ```

    **Arguments:**

    - `function`: of a `TrainingOutcome` in SI, written with `jax.numpy`; one positive number, less of it is better.
    - `unit`: of that number, for reports.
    - `name`: unless given the function's own.

    **Returns:** the name. The same function gets the same name.

    **Raises:** `InputError` for what is no name, and for a name that another output has.
    """
    for known in _KNOWN.values():
        if known.function is function and name in (None, known.name):
            return known.name
    written = str(getattr(function, "__name__", ""))
    if name is None:
        name = written if _NAME.match(written) else f"own_{len(_KNOWN) + 1}"
    if not _NAME.match(name):
        raise InputError(f'output "{name}": give a name of letters, digits and underscores.')
    if name in _KNOWN or hasattr(TrainingOutcome, name) or name in TrainingOutcome.__dataclass_fields__:
        raise InputError(
            f'output "{name}": another output has this name. Give it one of its own: own_output(..., name=...).'
        )
    _KNOWN[name] = OwnOutput(name, unit, function)
    return name


def own_outputs(names: Iterable[str]) -> tuple[OwnOutput, ...]:
    """Those of the names that a user defined."""
    return tuple(_KNOWN[name] for name in names if name in _KNOWN)


def check_own_outputs(names: Iterable[str], outcome: TrainingOutcome) -> None:
    """Check that outputs of a user can be traced, and are positive numbers at an outcome.

    **Raises:** `InputError` that names the output and its value.
    """
    for own in own_outputs(names):
        try:
            shape = eqx.filter_eval_shape(own.function, jax.tree.map(jnp.asarray, outcome)).shape
        except (jax.errors.JAXTypeError, AttributeError, TypeError) as error:
            raise InputError(
                f'output "{own.name}": it cannot be traced: {str(error).splitlines()[0]}. Write it with jax.numpy and '
                "the fields of energymodel.TrainingOutcome, and return one number."
            ) from error
        if shape != ():
            raise InputError(f'output "{own.name}": an array of shape {shape} is no output. Return one number.')
        value = float(own.function(outcome))
        if not 0.0 < value < float("inf"):
            raise InputError(
                f'output "{own.name}": {value:g} {own.unit} at the plan of the scenario. A search needs a positive '
                "number, whose logarithm it minimizes or limits."
            )
