"""`energymodel sensitivity`: what should one change or measure next?"""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source
from energymodel.errors import InputError

WIDTH = 136  # of tables where the output is no terminal


@shell.guarded
def command(
    source: Source,
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            metavar="OUTPUT",
            help="Output of evaluate, such as energy, time, money, carbon, loss, mfu or energy.cooling; repeatable. "
            "The first one orders the tables.",
        ),
    ] = None,
    optimum: Annotated[
        bool, typer.Option("--optimum", help="Of the optimum instead of the scenario's own plan.")
    ] = False,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Lines of each table.")] = 12,
    as_json: shell.AsJson = False,
    output: shell.Output = None,
    opened: shell.Open = False,
) -> int:
    """Say what to change or measure next: elasticities by every number, and what its uncertainty does."""
    shell.check_report(output, opened=opened)
    for option, value in {"--minimize": minimize, "--limit": limit, "--vary": vary, "--fix": fix}.items():
        if value and not optimum:
            raise InputError(f"{option} is about the optimum: add --optimum.")
    if optimum and of:
        raise InputError("--of is about the plan as given: leave out --optimum, or name the objective by --minimize.")
    with shell.Progress(lines=optimum) as progress:
        given = source.read()
        if optimum:
            given = given.with_question(minimize, limit, vary, fix or ())
        progress(f"loading the model for {given.name} ...")
        import jax

        from energymodel.report.page.sensitivity_page import sensitivity_page
        from energymodel.report.sensitivity_report import sensitivity_file, sensitivity_json, sensitivity_report
        from energymodel.search.sensitivity import OF, sensitivity

        with jax.enable_x64(True), shell.keeping():
            found = sensitivity(given, tuple(of or OF), optimum=optimum, progress=progress)
        tree, report = sensitivity_json(found), sensitivity_report(found, top)
        as_file = output is not None and output.suffix in (".csv", *shell.PICTURES)
        content = sensitivity_file(found, output.suffix) if as_file and output is not None else None
    shell.deliver(
        tree,
        report,
        as_json=as_json,
        output=output,
        content=content,
        page=lambda: sensitivity_page(found, shell.command_line()),
        opened=opened,
        width=WIDTH,
    )
    return shell.verdict(found.result, found.message)
