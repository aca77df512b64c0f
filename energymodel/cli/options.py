"""Options of commands, declared as fields of records and as defaults of parameters."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer

from energymodel.cli import completion
from energymodel.errors import InputError


def option(
    help: str,  # noqa: A002
    metavar: str | None = None,
    default: Any = None,
    *names: str,
    complete: Callable[[str], list[str]] | None = None,
    **settings: Any,
) -> Any:
    """A field of a record, or the default of a parameter, that a command offers as an option.

    - `names`: of the option; unless given, that of the field after two dashes.
    - `complete`: what may stand there, of what begins so; files where `metavar` says so.
    - `settings`: further ones of `typer.Option`.
    """
    if complete is None and metavar is not None and "FILE" in metavar:
        complete = completion.files
    about = {"names": names, "help": help, "metavar": metavar, "autocompletion": complete}
    return dataclasses.field(default=default, metadata={**about, **settings})


def flag(help: str, *names: str) -> Any:  # noqa: A002
    """The same for something that is done only if it is asked for."""
    return option(help, None, False, *names)


def argument(help: str, metavar: str | None = None, default: Any = None, **settings: Any) -> Any:  # noqa: A002
    """The same as a positional argument; required where the default is `...`."""
    return option(help, metavar, default, **settings, positional=True)


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command for Typer of a function whose parameters are options, records of options, and arguments of either.

    Arguments come first, then options in the order of parameters.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    records: dict[str, Any] = {
        name: own.annotation for name, own in parameters.items() if dataclasses.is_dataclass(own.annotation)
    }
    offered: list[inspect.Parameter] = []
    for name, own in parameters.items():
        if name in records:
            hints, fields = get_type_hints(records[name]), dataclasses.fields(records[name])
            offered += [_offered(field.name, hints[field.name], field) for field in fields if field.metadata]
        else:
            offered.append(_offered(name, own.annotation, own.default))

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        for parameter in offered:
            if "=" in (parameter.default.metavar or ""):
                _refuse_repeated(parameter.default.param_decls[0], values[parameter.name])
        built = {
            name: kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind) if field.metadata})
            for name, kind in records.items()
        }
        return command(**values, **built)

    offered.sort(key=lambda parameter: not isinstance(parameter.default, typer.models.ArgumentInfo))
    run.__signature__ = inspect.Signature(offered)  # type: ignore[attr-defined]
    return run


def _offered(name: str, annotation: Any, field: Any) -> inspect.Parameter:
    """A parameter from which Typer makes an option."""
    settings = dict(field.metadata)
    names = settings.pop("names") or (f"--{name.replace('_', '-')}",)
    if settings.pop("positional", False):
        info = typer.Argument(field.default, **settings)
    else:
        info = typer.Option(field.default, *names, **settings)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=annotation)


def pairs(texts: list[str] | None, name: str, form: str, example: str) -> dict[str, str]:
    """Names with their values of a repeated option.

    **Raises:** `InputError` for what is not `form`, such as NAME=VALUE.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not key or not value:
            raise InputError(f'{name} "{text}" is not {form}. Write for example {name} {example}.')
        pairs[key] = value
    return pairs


def _refuse_repeated(name: str, texts: list[str] | None) -> None:
    """Refuse a repeated option whose last "KEY=VALUE" would silently replace an earlier one, or a part of its key."""
    earlier: dict[str, str] = {}
    for text in texts or ():
        key, _, value = (part.strip() for part in text.partition("="))
        if earlier.setdefault(key, value) != value:
            raise InputError(f"{name}: {key} is given twice, as {earlier[key]} and as {value}. Keep one.")
        if part := next((other for other in earlier if other.startswith(f"{key}.")), None):
            raise InputError(f"{name} {text}: it would replace {part}={earlier[part]}. Give it before that one.")
