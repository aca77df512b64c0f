"""`energymodel site-power`: how is the power of a site best divided over compute, memory, links and cooling?"""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source

Limits = Annotated[
    list[str] | None,
    typer.Option("--power", metavar="POWER", help='A limit of the whole site, such as "25 MW". May be repeated.'),
]


@shell.guarded
def command(
    source: Source,
    power: Limits = None,
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> None:
    """Divide a site's power over compute, memory, links, host and cooling for the most tokens per second."""
    shell.check_outputs(output, plot)
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report import site_power_report
        from energymodel.search.site_power import divide_site_power

        given = source.read()
        progress("dividing the power ...")
        divided = divide_site_power(given, power or ())
    shell.deliver(
        {"scenario": given.named_tables, "site_power": site_power_report.site_power_rows(divided)},
        site_power_report.site_power_report(given, divided),
        as_json=as_json,
        output=output,
        rows=lambda: site_power_report.site_power_csv(divided),
        plot=plot,
        figure=lambda kind: site_power_report.site_power_figure(divided, kind),
    )
