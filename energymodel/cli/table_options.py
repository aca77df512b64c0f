"""Options that say how a table is read."""

from typing import TYPE_CHECKING, Annotated

import typer

from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.readers.columns import TableChoices

Rename = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="THEIRS=OURS", help="A column of the table under another name; repeatable."),
]
Constant = Annotated[
    list[str] | None,
    typer.Option(
        "--column", metavar="NAME=VALUE", help="A column with one value for all rows, before the table's; repeatable."
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-columns",
        metavar="NAMES",
        help="Columns to leave out, with commas between; all stands for every unknown one; repeatable.",
    ),
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be read, and say how many.")
]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Take these rows only; repeatable.")
]


def table_choices(
    rename: list[str] | None,
    constant: list[str] | None,
    ignore: list[str] | None,
    skip_bad_rows: bool,
    where: list[str] | None,
    cluster: str | None = None,
) -> "TableChoices":
    """The choices that the options make.

    **Raises:** `InputError`.
    """
    from energymodel.readers.columns import TableChoices

    return TableChoices(
        rename=_pairs(rename, "--rename", "THEIRS=OURS", "gpus_used=chips"),
        constants=_pairs(constant, "--column", "NAME=VALUE", "vocabulary=51200"),
        ignore=tuple(name.strip() for names in ignore or () for name in names.split(",") if name.strip()),
        where=_pairs(where, "--where", "COLUMN=VALUE", "gpu=V100"),
        skip_bad_rows=skip_bad_rows,
        cluster=cluster or "",
    )


def _pairs(texts: list[str] | None, option: str, form: str, example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not name or not value:
            raise InputError(f'{option} "{text}" is not {form}. Write for example {option} {example}.')
        if name in pairs and pairs[name] != value:
            raise InputError(f"{option}: {name} is given twice, as {pairs[name]} and as {value}. Keep one.")
        pairs[name] = value
    return pairs
