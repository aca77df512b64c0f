"""Launch files of a command: for which framework, and their texts by extension."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from energymodel.cli.options import option
from energymodel.cli.shell import Files, Run
from energymodel.cli.source import Parts

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario

LaunchFiles = Callable[..., Files]
"""Launch files of a scenario, its plan, and the tokens that it trains."""
EXTENSIONS = (".sh", ".toml", ".yaml", ".yml")
"""Of files that a command writes for a training framework, beside JSON where --launch says so."""
LAUNCH = option(
    "For which framework -o launch.sh, train.toml or config.yaml is, such as megatron-lm or nemo; by default that of "
    "the --training file, or of the software.",
    "FRAMEWORK",
)


def launch_files(run: Run, source: Parts, scenario: "Scenario", kind: str | None) -> LaunchFiles:
    """What gives the launch files of a plan; their frameworks are chosen here, before the work.

    **Raises:** `InputError` as `launch_kinds`.
    """
    from energymodel.readers.training_config import read_training_config
    from energymodel.report.launch_file import launch_file, launch_kinds

    suffixes = {path.suffix for path in run.show.output or ()}
    is_wanted = kind is not None or suffixes & {*EXTENSIONS}
    below = read_training_config(source.training, automatic={}) if source.training and is_wanted else None
    kinds = launch_kinds(suffixes, kind, scenario, below)

    return lambda *plan: {suffix: partial(launch_file, *plan, kind=own, below=below) for suffix, own in kinds.items()}
