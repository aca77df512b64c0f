"""The commands of `energymodel`, and how one is run."""

import gc
import sys
from typing import Any, cast

import typer
import typer.core

from energymodel import __version__
from energymodel.cli import installed_commands, measurement_commands, plan_commands, search_commands
from energymodel.cli.shell import BAD_INPUT, DEFECT, TRUSTED, fail, print_error
from energymodel.runtime.cache_folder import keep_compiled_programs
from energymodel.runtime.process import INTERRUPTED
from energymodel.runtime.terminal import guard_streams

EXAMPLE = "Example: "
"""Begins the last paragraph of a command's docstring."""
COMMANDS = {
    "evaluate": plan_commands.evaluate,
    "optimize": search_commands.optimize,
    "design-chip": search_commands.design_chip,
    "pareto": search_commands.pareto,
    "replan": search_commands.replan,
    "scenario": plan_commands.scenario,
    "sensitivity": plan_commands.sensitivity,
    "sweep": search_commands.sweep,
    "predict": measurement_commands.predict,
    "calibrate": measurement_commands.calibrate,
    "calendar": search_commands.calendar,
    "batch": plan_commands.batch,
    "compare": search_commands.compare,
    "explore": plan_commands.explore,
    "fleet": search_commands.fleet,
    "frontier": search_commands.frontier,
    "limits": plan_commands.limits,
    "benchmark": measurement_commands.benchmark,
    "measure": measurement_commands.measure,
    "monitor": measurement_commands.monitor,
    "doctor": installed_commands.doctor,
    "schema": installed_commands.schema,
    "timeline": plan_commands.timeline,
    "post-train": plan_commands.post_train,
}


class _Commands(typer.core.TyperGroup):
    """Commands whose usage errors are JSON, too, where `--json` is given, also before the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*args[1:], args[0]] if args[:1] == ["--json"] else args)

    def invoke(self, ctx: Any) -> Any:
        words = [*ctx._protected_args, *ctx.args]
        try:
            return super().invoke(ctx)
        except cast(Any, typer.BadParameter.__base__) as error:  # of usage, which typer does not export
            if "--json" in words:
                print_error(error.format_message(), BAD_INPUT)
            raise


app = typer.Typer(
    name="energymodel",
    cls=_Commands,
    help="Energy, time, money and carbon of training a model, and the best plan.",
    epilog="Example: energymodel evaluate llama-3.1-405b-h100 --set plan.clock=0.9",
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
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say which version."),
) -> None:
    pass


for _name, _command in COMMANDS.items():
    _text, _separator, _example = str(_command.__doc__).rpartition(EXAMPLE)
    app.command(_name, help=_text, epilog=EXAMPLE + " ".join(_example.split()))(_command)
app.add_typer(installed_commands.app, name="presets")


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
        message = f"{type(error).__name__}: {error} Please report this with the lines below."
        if "--json" in sys.argv:
            print_error(message, DEFECT)
        fail(message, DEFECT, "defect")
        raise
    finally:
        gc.freeze()  # what a large trace leaves would be searched for garbage on the way out
