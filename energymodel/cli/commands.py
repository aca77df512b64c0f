"""Which commands are there?"""

import gc
import sys
from typing import Annotated

import typer

from energymodel import __version__
from energymodel.cli import (
    batch_command,
    calendar_command,
    calibrate_command,
    compare_command,
    design_chip_command,
    doctor_command,
    evaluate_command,
    explore_command,
    fleet_command,
    frontier_command,
    limits_command,
    measure_command,
    monitor_command,
    optimize_command,
    pareto_command,
    predict_command,
    presets_command,
    replan_command,
    scenario_command,
    sensitivity_command,
    sweep_command,
    timeline_command,
)
from energymodel.cli.cache_folder import keep_compiled_programs
from energymodel.cli.process import INTERRUPTED
from energymodel.cli.shell import BAD_INPUT, DEFECT, TRUSTED, fail
from energymodel.cli.terminal import guard_streams

COMMANDS = {
    "evaluate": evaluate_command.command,
    "optimize": optimize_command.command,
    "design-chip": design_chip_command.command,
    "pareto": pareto_command.command,
    "replan": replan_command.command,
    "scenario": scenario_command.command,
    "sensitivity": sensitivity_command.command,
    "sweep": sweep_command.command,
    "predict": predict_command.command,
    "calibrate": calibrate_command.command,
    "calendar": calendar_command.command,
    "batch": batch_command.command,
    "compare": compare_command.command,
    "explore": explore_command.command,
    "fleet": fleet_command.command,
    "frontier": frontier_command.command,
    "limits": limits_command.command,
    "measure": measure_command.command,
    "monitor": monitor_command.command,
    "doctor": doctor_command.command,
    "timeline": timeline_command.command,
}
EXAMPLES = {
    "evaluate": "evaluate llama-3.1-405b-h100 --set plan.clock=0.9",
    "optimize": 'optimize --model config.json --accelerator h100-sxm --chips 64 --tokens "1 T" --limit "time=30 d"',
    "design-chip": "design-chip olmo-2-13b-h100 --minimize energy",
    "monitor": "monitor llama-3.1-405b-h100 --log train.log --power gpu.csv --follow -o run.jsonl",
    "pareto": "pareto llama-3.1-405b-h100 --minimize energy --minimize time -o front.csv",
    "replan": "replan llama-3.1-405b-h100 --so-far so-far.toml --rest rest.toml",
    "scenario": "scenario --training train.toml --accelerator h100-sxm --chips 64 -o mine.toml",
    "sensitivity": "sensitivity llama-3.1-405b-h100 --of energy -o tornado.svg",
    "sweep": 'sweep llama-3.1-405b-h100 --axis "plan.batch=8..64 Mi token log 20" --axis plan.clock=0.5:1:11',
    "predict": "predict train.toml --accelerator h100-sxm --chips 64",
    "calibrate": "calibrate step-time steps.csv --prior llama-3.1-405b-h100 -o cluster.toml",
    "calendar": 'calendar olmo-2-13b-h100 --deadline "40 d" --plot calendar.svg',
    "batch": "batch llama-3.1-405b-h100 --plot batch.svg",
    "compare": "compare olmo-2-13b-h100 --accelerator b200-sxm --accelerator tpu-v5p",
    "explore": "explore llama-3.1-405b-h100",
    "fleet": 'fleet olmo-2-13b-h100 --group "h100-sxm 512" --group "a100-sxm4-80gb 512"',
    "frontier": "frontier olmo-2-13b-h100 --points 7 --plot frontier.svg",
    "limits": "limits llama-3.1-405b-h100",
    "measure": "measure train.log gpu.csv --training train.toml --accelerator h100-sxm --chips 64 -o steps.csv",
    "doctor": "doctor --clear-cache",
    "timeline": "timeline llama-3.1-405b-h100 --plot step.svg",
}
"""A command that runs as it stands, or with a person's own file, for each help text."""
MOVED = {
    "site-power": "it is `energymodel fleet --site` now, with the same options",
    "stage-clocks": "it is `energymodel timeline --clocks` now, with the same options",
    "documents": "its table is the page docs/documents.md now",
}
"""Commands that are no longer here, and what does their work."""

app = typer.Typer(
    name="energymodel",
    help="Energy, time, money and carbon of training a large language model, and the best plan.",
    epilog=f"Example: energymodel {EXAMPLES['evaluate']}",
    no_args_is_help=True,
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


for _name, _command in COMMANDS.items():
    app.command(_name, epilog=f"Example: energymodel {EXAMPLES[_name]}")(_command)
app.add_typer(presets_command.app, name="presets")


def _moved(context: typer.Context) -> None:
    name = str(context.info_name)
    raise typer.Exit(fail(f"{name}: {MOVED[name]}.", BAD_INPUT, "error"))


for _name in MOVED:
    app.command(_name, hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_moved)


def run_command() -> None:
    """Run the command that was typed; compiled programs are kept between runs."""
    guard_streams()
    if (refusal := keep_compiled_programs()) is not None:
        fail(f"compiled programs are not kept: {refusal}", TRUSTED, "warning")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(fail("interrupted.", INTERRUPTED))
    except Exception as error:
        fail(f"{type(error).__name__}: {error} Please report this with the lines below.", DEFECT, "defect")
        raise
    finally:
        gc.freeze()  # what a large trace leaves would be searched for garbage on the way out
