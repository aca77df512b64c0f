"""`energymodel timeline`: what does each pipeline rank do during a step?"""

from energymodel.cli import shell
from energymodel.cli.source import Source


@shell.guarded
def command(
    source: Source, as_json: shell.AsJson = False, plot: shell.Plot = None, output: shell.TableOutput = None
) -> None:
    """Simulate the pipeline of a step pass by pass: who works, who waits, what `evaluate` says of it."""
    shell.check_outputs(output, plot)
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report import timeline_report
        from energymodel.search.timeline import step_timeline

        given = source.read()
        progress("simulating the step ...")
        timeline = step_timeline(given.system, given.plan)
    tree = {"scenario": given.named_tables, **timeline_report.timeline_json(timeline)}
    shell.deliver(
        tree,
        timeline_report.timeline_report(timeline),
        as_json=as_json,
        output=output,
        rows=lambda: timeline_report.timeline_csv(timeline),
        plot=plot,
        figure=lambda kind: timeline_report.timeline_figure(timeline, kind),
    )
