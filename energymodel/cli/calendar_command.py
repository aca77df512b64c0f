"""`energymodel calendar`: start and hourly power of a run over the hours of a grid."""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError

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
Battery = Annotated[str | None, typer.Option("--battery", hidden=True)]
Efficiency = Annotated[float | None, typer.Option("--battery-efficiency", hidden=True)]
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
    show: Delivery,
    grid: Grid = None,
    zone: Zone = None,
    weather: Weather = "file",
    minimize: Objective = "money",
    deadline: Deadline = None,
    start: Start = "any",
    demand_charge: Charge = None,
    battery: Battery = None,
    battery_efficiency: Efficiency = None,
    contract: Contract = None,
    carbon_price: CarbonPrice = None,
) -> int:
    """Cheapest or cleanest start and hourly power of a run.

    Beside the best constant power, over the hours of a grid.

    Example: energymodel calendar olmo-2-13b-h100 --deadline "40 d" --plot calendar.svg
    """
    show.check()
    for name, value in (("--battery", battery), ("--battery-efficiency", battery_efficiency)):
        if value is not None:
            raise InputError(f"{name}: a calendar plans no battery anymore. Leave it out.")
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report.answers.calendar import calendar_answer
        from energymodel.search.calendar import calendar

        result = calendar(
            source.read(),
            grid=grid,
            zone=zone,
            weather=weather,
            minimize=minimize,
            deadline=deadline,
            start=start,
            demand_charge=demand_charge,
            contract=contract,
            carbon_price=carbon_price,
            progress=progress,
        )
    return show.deliver(calendar_answer(result))
