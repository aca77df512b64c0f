"""`energymodel calendar`: when to start, at which power to run and when to pause, over the hours of a grid?"""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source

Grid = Annotated[
    Path | None,
    typer.Option("--grid", metavar="FILE", help="CSV of hours, or of month-by-hour means; else the scenario's market."),
]
Zone = Annotated[str | None, typer.Option("--zone", metavar="NAME", help="Zone of the file.")]
Weather = Annotated[
    str,
    typer.Option("--weather", metavar="WHOSE", help="file, or scenario for the mean cooling of the scenario's year."),
]
Objective = Annotated[
    str, typer.Option("--minimize", metavar="OBJECTIVE", help="money, carbon, carbon_operational or energy.")
]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="TIME", help='Longest run, such as "120 d"; 1.25 times the shortest one.'),
]
Start = Annotated[str, typer.Option("--start", metavar="HOUR", help="Hour of the file, or any.")]
Charge = Annotated[
    str | None,
    typer.Option("--demand-charge", metavar="PRICE", help='For the highest hour of a month, such as "15 USD/kW".'),
]
Battery = Annotated[
    str | None, typer.Option("--battery", metavar="SIZE", help='Such as "50 MWh at 12 MW"; four hours unless given.')
]
Efficiency = Annotated[
    float, typer.Option("--battery-efficiency", metavar="SHARE", help="Energy given over energy taken.")
]
Contract = Annotated[
    str | None, typer.Option("--contract", metavar="BLOCK", help='Paid used or not, such as "0.04 USD/kWh at 20 MW".')
]
CarbonPrice = Annotated[
    str | None,
    typer.Option("--carbon-price", metavar="PRICE", help='Added to money for all carbon, such as "100 USD/t".'),
]


@shell.guarded
def command(
    source: Source,
    grid: Grid = None,
    zone: Zone = None,
    weather: Weather = "file",
    minimize: Objective = "money",
    deadline: Deadline = None,
    start: Start = "any",
    demand_charge: Charge = None,
    battery: Battery = None,
    battery_efficiency: Efficiency = 0.85,
    contract: Contract = None,
    carbon_price: CarbonPrice = None,
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> None:
    """Start, power and pauses hour by hour at the lowest money or carbon, beside the best constant power."""
    shell.check_outputs(output, plot)
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report import calendar_report
        from energymodel.search.calendar import calendar

        given = source.read()
        found = calendar(
            given,
            grid=grid,
            zone=zone,
            weather=weather,
            minimize=minimize,
            deadline=deadline,
            start=start,
            demand_charge=demand_charge,
            battery=battery,
            battery_efficiency=battery_efficiency,
            contract=contract,
            carbon_price=carbon_price,
            progress=progress,
        )
    tree = {"scenario": given.named_tables, **calendar_report.calendar_json(found)}
    shell.deliver(
        tree,
        calendar_report.calendar_report(found),
        as_json=as_json,
        output=output,
        rows=lambda: calendar_report.calendar_csv(found),
        plot=plot,
        figure=lambda kind: calendar_report.calendar_figure(found, kind),
    )
