"""What does a command work on: a scenario by name or file, or the pieces to make one of?

A command has one parameter of type `Source`; `expanded` puts the argument and the options in its place that give one.
"""

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from energymodel.cli import completion
from energymodel.errors import InputError, one_line

if TYPE_CHECKING:
    from energymodel.scenarios.pieces import Pieces
    from energymodel.scenarios.scenario import Scenario

SCENARIO_HELP = "Name of a preset scenario, or a file: TOML, or JSON of an earlier run."
ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help=SCENARIO_HELP, autocompletion=completion.scenarios)
]
MaybeScenario = Annotated[
    str | None,
    typer.Argument(metavar="[SCENARIO]", help=SCENARIO_HELP, autocompletion=completion.scenarios, show_default=False),
]
ScenarioOption = Annotated[
    str | None,
    typer.Option(
        "--scenario",
        metavar="NAME|FILE",
        help="The run whose files these are: a preset scenario, or a file.",
        autocompletion=completion.scenarios,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|FILE",
        help="Instead of a SCENARIO: a model preset, or a config.json of Hugging Face.",
        autocompletion=completion.models,
    ),
]
Training = Annotated[
    str | None,
    typer.Option(
        "--training",
        metavar="FILE",
        help="Instead of a SCENARIO: a configuration of Megatron, torchtitan, NeMo and others.",
        autocompletion=completion.files,
    ),
]
Accelerator = Annotated[
    str | None,
    typer.Option(
        "--accelerator",
        metavar="NAME",
        help="Of --model or --training, such as h100-sxm; that of the --cluster if there is one.",
        autocompletion=completion.accelerators,
    ),
]
Chips = Annotated[str | None, typer.Option("--chips", metavar="N", help="Number of chips of --model or --training.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="TOKENS", help='Tokens of its run, such as "15 T".')]
Batch = Annotated[str | None, typer.Option("--batch", metavar="TOKENS", help='Tokens of its batch, such as "4 Mi".')]
Sequence = Annotated[str | None, typer.Option("--sequence", metavar="TOKENS", help="Tokens of a training sequence.")]
Microbatch = Annotated[
    str | None,
    typer.Option(
        "--microbatch", metavar="N", help="Sequences of a micro-batch, where --training leaves them to the launch."
    ),
]
Vocabulary = Annotated[
    str | None,
    typer.Option(
        "--vocabulary", metavar="N", help="Rows of the embedding, where --training leaves them to a tokenizer."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Put the run on this cluster: a preset, or a file that `calibrate step-time -o` wrote.",
        autocompletion=completion.clusters,
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a number, such as plan.clock=0.8; repeatable."),
]


KEPT = ("scenario", "cluster", "changes")
"""Fields of a source that a scenario keeps itself, or that are no options."""


@dataclass(frozen=True)
class Source:
    """A scenario's name or file, or a model or a training configuration with what it lacks; and changes of it."""

    scenario: MaybeScenario = None
    model: Model = None
    training: Training = None
    accelerator: Accelerator = None
    chips: Chips = None
    tokens: Tokens = None
    batch: Batch = None
    sequence: Sequence = None
    microbatch: Microbatch = None
    vocabulary: Vocabulary = None
    cluster: Cluster = None
    changes: Changes = None

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.scenario or self.training or self.model or "the scenario"

    def read(self, changes: tuple[str, ...] = (), tokens_otherwise: str | None = None) -> "Scenario":
        """The scenario, with these changes below its own; what is assumed of pieces goes to stderr.

        **Arguments:**

        - `tokens_otherwise`: as in `pieces`.

        **Raises:** `InputError`.
        """
        if self.model is None and self.training is None:
            return self._stored(changes)
        made = self.pieces("own", changes, tokens_otherwise)
        for sentence in made.assumed:
            print(f"note: {one_line(sentence)}", file=sys.stderr)
        return replace(made.scenario, source=shlex.join(self._options()))

    def _options(self) -> list[str]:
        """The options that name the pieces, without the cluster and the changes, which the scenario keeps."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in KEPT}
        return [part for name, one in given.items() if one is not None for part in (f"--{name}", str(one))]

    def pieces(self, name: str, changes: tuple[str, ...] = (), tokens_otherwise: str | None = None) -> "Pieces":
        """The scenario of the pieces, called so, and what was assumed for it; of so many tokens if nothing says them.

        **Raises:** `InputError`, also where a piece is missing.
        """
        from energymodel.scenarios.pieces import accelerator_of, scenario_of_pieces
        from energymodel.scenarios.training_file import scenario_of_training

        if self.scenario is not None:
            raise InputError(
                f'"{self.scenario}": with --model or --training there is no SCENARIO. Leave out one of them.'
            )
        if self.accelerator is None and self.cluster is None:
            raise InputError("--accelerator is missing. Give one, such as h100-sxm, or a --cluster.")
        accelerator = self.accelerator or accelerator_of(str(self.cluster))
        common = {"batch": self.batch, "sequence": self.sequence, "cluster": self.cluster, "name": name}
        common["changes"] = (*changes, *(self.changes or ()))
        if self.training is not None:
            own = {"model": self.model, "vocabulary": self.vocabulary, "chips": self.chips, "tokens": self.tokens}
            own["microbatch"] = self.microbatch
            return scenario_of_training(self.training, accelerator, **own, **common, tokens_otherwise=tokens_otherwise)
        if self.vocabulary is not None:
            raise InputError("--vocabulary: it belongs to a --training file. A --model says its own.")
        if self.microbatch is not None:
            raise InputError("--microbatch: it belongs to a --training file. Give --set plan.layout.microbatch=2.")
        tokens = self.tokens or tokens_otherwise
        given = {"--model": self.model, "--chips": self.chips, "--tokens": tokens}
        if missing := [option for option, value in given.items() if value is None]:
            raise InputError(f'{", ".join(missing)} is missing. Give it, such as --tokens "1 T", or a --training file.')
        made = scenario_of_pieces(str(self.model), accelerator, str(self.chips), str(tokens), **common)
        return made._replace(says_tokens=self.tokens is not None)

    def _stored(self, changes: tuple[str, ...]) -> "Scenario":
        for field in fields(self):
            if field.name not in KEPT and getattr(self, field.name) is not None:
                raise InputError(f"--{field.name} belongs to --model or --training, and neither is given. Give one.")
        if self.scenario is None:
            raise InputError(
                "no scenario. Give its name or file, or --model, --accelerator, --chips and --tokens; "
                "`energymodel presets list scenarios` lists names."
            )
        return read_scenario(self.scenario, [*changes, *(self.changes or ())], self.cluster)


@dataclass(frozen=True)
class OptionSource(Source):
    """The same where the arguments of a command are files: the scenario is an option, and all may be left out."""

    scenario: ScenarioOption = None

    @property
    def is_given(self) -> bool:
        """Whether a scenario or the pieces of one are named."""
        return not (self.scenario is None and self.model is None and self.training is None)


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that has the options of a dataclass, such as `Source`, where it had a parameter of that type.

    The scenario is the first argument; what is shown and written comes last.
    """
    signature = inspect.signature(command, eval_str=True)
    kinds = {name: one.annotation for name, one in signature.parameters.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    if not groups:
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command
    options = {name: inspect.signature(kind, eval_str=True).parameters for name, kind in groups.items()}

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        filled = {
            name: kind(**{option: kwargs.pop(option) for option in options[name] if option in kwargs})
            for name, kind in groups.items()
        }
        return command(*args, **filled, **kwargs)

    own = [one for name, one in signature.parameters.items() if name not in groups]
    first = [options[name]["scenario"] for name, kind in groups.items() if kind is Source]
    of_sources = [one for name, kind in groups.items() if issubclass(kind, Source) for one in options[name].values()]
    rest = [one for name, kind in groups.items() if not issubclass(kind, Source) for one in options[name].values()]
    ordered = [*first, *own, *(one for one in of_sources if one not in first), *rest]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in ordered]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def read_scenario(source: str, changes: list[str] | None, cluster: str | None = None) -> "Scenario":
    """A preset, a TOML file, or the scenario within the JSON of an earlier run; on another cluster if one is named.

    **Raises:** `InputError`.
    """
    from energymodel.scenarios.scenario import load_scenario

    return replace(load_scenario(scenario_source(source), changes or [], cluster), source=shlex.quote(source))


def scenario_source(source: str) -> str | Path | Mapping[str, Any]:
    """What `load_scenario` reads: a preset's name, a TOML file, or the tables within the JSON of an earlier run.

    **Raises:** `InputError`.
    """
    from energymodel.readers.text_file import is_file

    path = Path(source)
    if path.suffix == ".json":
        return _scenario_of_run(path)
    return path if is_file(path) else source


def _scenario_of_run(path: Path) -> Mapping[str, Any]:
    from energymodel.readers.text_file import is_file, read_json

    if not is_file(path):
        raise InputError(
            f"{path}: no such file. Give a scenario file or a preset name; `energymodel presets` lists them."
        )
    try:
        run = read_json(path)
    except InputError as error:
        raise InputError(
            f"{error} Give the JSON that `energymodel evaluate -o run.json` wrote, or a scenario."
        ) from None
    if "model_type" in run or "architectures" in run:
        raise InputError(
            f"{path}: it describes a model, not a run. Give it as --model, with --accelerator and --chips."
        )
    scenario = run.get("scenario", run)
    if not isinstance(scenario, dict):
        raise InputError(f"{path}: holds no scenario. Give a file that `energymodel evaluate -o run.json` wrote.")
    return {"name": path.stem, **scenario}
