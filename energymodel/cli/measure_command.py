"""`energymodel measure`: logs of a run and of its meters as a table that `calibrate` reads."""

from typing import Annotated

import typer

from energymodel.cli import completion, shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import OptionSource

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Logs of training, and of power or energy; the kind of each is told from what it holds.",
        autocompletion=completion.files,
    ),
]
Offset = Annotated[
    str | None, typer.Option("--offset", metavar="TIME", help='Added to the times of the meters, such as "-30 s".')
]
Interval = Annotated[
    str | None, typer.Option("--interval", metavar="TIME", help="Between samples, where a meter's log has no times.")
]


@shell.guarded
def command(
    files: Files, source: OptionSource, show: Delivery, offset: Offset = None, interval: Interval = None
) -> int:
    """Measure step time, power, energy and phases from logs, and write the table that `calibrate` reads.

    With --scenario, --training or --model the rows also have the model, the layout and the machine.
    """
    show.check()
    with shell.Progress() as progress:
        progress("reading the logs ...")
        from energymodel.calibration.measured_table import measured_csv, measured_rows
        from energymodel.readers.measured_log import measure_logs
        from energymodel.report.answers.measure import measure_answer
        from energymodel.units import parse_quantity

        apart = None if interval is None else parse_quantity(interval, "s", "--interval")
        logs = measure_logs(
            files, offset=0.0 if offset is None else parse_quantity(offset, "s", "--offset"), interval=apart
        )
        scenario = source.read(tokens_otherwise="1 T") if source.is_given else None
        rows = measured_rows(logs, scenario, source.cluster or "")
    return show.deliver(measure_answer(logs, rows), files={".csv": lambda: measured_csv(rows)})
