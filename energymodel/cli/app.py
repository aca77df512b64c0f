"""Which commands are there?"""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from energymodel import __version__
from energymodel.cli import (
    batch_command,
    calendar_command,
    calibrate_command,
    compare_command,
    design_chip_command,
    documents_command,
    evaluate_command,
    fleet_command,
    frontier_command,
    limits_command,
    optimize_command,
    pareto_command,
    predict_command,
    presets_command,
    replan_command,
    scenario_command,
    sensitivity_command,
    site_power_command,
    stage_clocks_command,
    sweep_command,
    timeline_command,
)
from energymodel.cli.shell import DEFECT, INTERRUPTED, fail

app = typer.Typer(
    name="energymodel",
    help="Energy, time, money and carbon of training a large language model, and the best plan.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"energymodel {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _energymodel(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
) -> None:
    pass


app.command("evaluate")(evaluate_command.command)
app.command("optimize")(optimize_command.command)
app.command("design-chip")(design_chip_command.command)
app.command("pareto")(pareto_command.command)
app.command("replan")(replan_command.command)
app.command("scenario")(scenario_command.command)
app.command("sensitivity")(sensitivity_command.command)
app.command("sweep")(sweep_command.command)
app.command("predict")(predict_command.command)
app.command("calibrate")(calibrate_command.command)
app.command("calendar")(calendar_command.command)
app.command("batch")(batch_command.command)
app.command("compare")(compare_command.command)
app.command("fleet")(fleet_command.command)
app.command("frontier")(frontier_command.command)
app.command("limits")(limits_command.command)
app.command("documents")(documents_command.command)
app.command("site-power")(site_power_command.command)
app.command("stage-clocks")(stage_clocks_command.command)
app.command("timeline")(timeline_command.command)
app.add_typer(presets_command.app, name="presets")


def main() -> None:
    """Run the command line; compiled programs are kept between runs."""
    _keep_compiled_programs()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(fail("interrupted.", INTERRUPTED))
    except Exception as error:
        fail(f"{type(error).__name__}: {error} Please report this with the lines below.", DEFECT, "defect")
        raise
    finally:
        gc.freeze()  # what a large trace leaves would be searched for garbage on the way out


def _keep_compiled_programs() -> None:
    """Point JAX at a cache folder, unless the environment already does; JAX reads this when it is imported."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "energymodel" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a home that cannot be written: compile each time
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
