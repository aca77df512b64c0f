"""`energymodel pareto`: which plans cannot be improved in one respect without giving up another?"""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source


@shell.guarded
def command(
    source: Source,
    minimize: Annotated[
        list[str] | None,
        typer.Option(
            "--minimize", metavar="OBJECTIVE", help="Energy, time, money, carbon or loss; give it twice or more."
        ),
    ] = None,
    points: Annotated[int, typer.Option("--points", help="Points of the front.")] = 64,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    as_json: shell.AsJson = False,
    output: shell.Output = None,
    opened: shell.Open = False,
) -> int:
    """Draw the front of plans that trade objectives, by default energy against time, with exchange rates."""
    shell.check_report(output, opened=opened)
    with shell.Progress(lines=True) as progress:
        given = source.read().with_question(None, limit, vary, fix or ())
        progress(f"loading the design search for {given.name} ...")
        import jax

        from energymodel.report.front_report import front_file, front_json, front_report
        from energymodel.report.page.front_page import front_page
        from energymodel.search.pareto import pareto
        from energymodel.sweeps.outcome_spread import outcome_spread

        with jax.enable_x64(True):
            with shell.keeping():
                front = pareto(given, minimize or ("energy", "time"), points, progress=progress)
            progress("moving the uncertain numbers")
            spread = outcome_spread(given, front.points[front.knee].plan)
            tree, report = front_json(front, spread), front_report(front, spread)
            as_file = output is not None and output.suffix in (".csv", *shell.PICTURES)
            content = front_file(front, output.suffix) if as_file and output is not None else None
    shell.deliver(
        tree,
        report,
        as_json=as_json,
        output=output,
        content=content,
        page=lambda: front_page(front, spread, shell.command_line()),
        opened=opened,
    )
    return shell.verdict(front.result, front.message)
