"""What a command works on: a scenario by name or file, or the pieces that one is made of; and what is asked of it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import energymodel as em
from energymodel.cli import completion, shell
from energymodel.cli.options import argument, option
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.scenarios.pieces import Pieces
    from energymodel.scenarios.scenario import Scenario

LaunchFiles = Callable[..., shell.Files]
"""Launch files of a scenario, its plan, and the tokens that it trains."""
LAUNCHED = (".sh", ".toml", ".yaml", ".yml")
"""Extensions of files that a command writes for a training framework, beside JSON where --launch says so."""
LAUNCH = option(
    "For which framework -o launch.sh, train.toml or config.yaml is, such as megatron-lm or nemo; by default that of "
    "the --training file, or of the software.",
    "FRAMEWORK",
)
TUNING = ("tuning", "rank", "optimizer", "samples", "mean_length", "epochs", "padding")
"""Options of fine-tuning."""
_SCENARIO = "Name of a preset scenario, or a file: TOML, or JSON of an earlier run."


@dataclass(frozen=True)
class Stored:
    """A scenario that has a name or a file, and changes of it."""

    scenario: str | None = argument(_SCENARIO, "SCENARIO", ..., complete=completion.scenarios)
    cluster: str | None = option(
        "Put the run on this cluster: a preset, or a file that `calibrate step-time -o` wrote.",
        "NAME",
        complete=completion.clusters,
    )
    changes: list[str] | None = option(
        "Change a number, such as plan.clock=0.8; repeatable.", "PATH=VALUE", None, "--set"
    )
    oom_risk: str | None = option("Probability to run out of memory that a plan may have, 0.05 otherwise.", "SHARE")

    @property
    def changed(self) -> list[str]:
        """Changes of numbers, with the risk."""
        path, changes = "system.out_of_memory_risk", self.changes or []
        if self.oom_risk is None:
            return changes
        if given := next((change for change in changes if change.strip().startswith(path)), None):
            raise InputError(f"--oom-risk {self.oom_risk}: --set {given} says it, too. Leave out one of them.")
        return [*changes, f"{path}={self.oom_risk}"]

    @property
    def stored(self) -> "str | Path | Mapping[str, Any]":
        """What `load_scenario` reads."""
        return _stored(str(self.scenario))


@dataclass(frozen=True)
class Parts(Stored):
    """A model or a training configuration, with what it lacks."""

    scenario: str | None = None
    model: str | None = option(
        "Instead of a SCENARIO: a model preset, or a config.json of Hugging Face.",
        "NAME|FILE",
        complete=completion.models,
    )
    training: str | None = option(
        "Instead of a SCENARIO: a configuration of Megatron, torchtitan, NeMo and others.", "FILE"
    )
    accelerator: str | None = option(
        "Of --model or --training: a preset, or a file of `benchmark`; that of the --cluster if there is one.",
        "NAME|FILE",
        complete=completion.accelerators,
    )
    framework: str | None = option(
        "Software of the run, such as torchtitan; or whose file --training is, where that is not recognized.",
        "NAME",
        complete=completion.frameworks,
    )
    chips: str | None = option("Number of chips of --model or --training.", "N")
    tokens: str | None = option('Tokens of its run, such as "15 T".', "TOKENS")
    batch: str | None = option(
        'Tokens of its batch, such as "4 Mi"; it stays unless --vary plan.batch=LOW:HIGH.', "TOKENS"
    )
    sequence: str | None = option("Tokens of a training sequence.", "TOKENS")
    microbatch: str | None = option("Sequences of a micro-batch, where --training leaves them to the launch.", "N")
    vocabulary: str | None = option("Rows of the embedding, where --training leaves them to a tokenizer.", "N")

    @property
    def is_given(self) -> bool:
        """Whether a scenario or the pieces of one are named."""
        return not (self.scenario is None and self.model is None and self.training is None)

    @property
    def of_pieces(self) -> dict[str, str]:
        """Options that name pieces, without the cluster and the changes, which the scenario keeps."""
        stored = {field.name for field in fields(Stored)}
        names = [field.name for field in fields(self) if field.name not in stored]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def read(self, changes: tuple[str, ...] = (), tokens_otherwise: str | None = None) -> "Scenario":
        """The scenario, with these changes below its own; what is assumed of pieces goes to stderr.

        - `tokens_otherwise`: as in `pieces`.
        """
        if self.model is None and self.training is None:
            if self.of_pieces:
                name = next(iter(self.of_pieces)).replace("_", "-")
                raise InputError(f"--{name} belongs to --model or --training, and neither is given. Give one.")
            if self.scenario is None:
                raise InputError(
                    "no scenario. Give its name or file, or --model, --accelerator, --chips and --tokens; "
                    "`energymodel presets list scenarios` lists names."
                )
            return read_scenario(self.scenario, [*changes, *self.changed], self.cluster)
        made = self.pieces("own", changes, tokens_otherwise)
        for sentence in made.assumed:
            shell.note(sentence)
        parts = self.of_pieces if made.says_tokens else {**self.of_pieces, "tokens": str(tokens_otherwise)}
        options = (part for name, value in parts.items() for part in (f"--{name.replace('_', '-')}", str(value)))
        return replace(made.scenario, source=shlex.join(options))

    def pieces(self, name: str, changes: tuple[str, ...] = (), tokens_otherwise: str | None = None) -> "Pieces":
        """The scenario of the pieces, called so, and what was assumed for it; of so many tokens if nothing says them.

        **Raises:** `InputError`, also where a piece is missing.
        """
        from energymodel.scenarios.pieces import accelerator_of

        if self.scenario is not None:
            raise InputError(
                f'"{self.scenario}": with --model or --training there is no SCENARIO. Leave out one of them.'
            )
        if self.accelerator is None and self.cluster is None:
            raise InputError("--accelerator is missing. Give one, such as h100-sxm, or a --cluster.")
        accelerator = self.accelerator or accelerator_of(str(self.cluster))
        common = {"batch": self.batch, "sequence": self.sequence, "cluster": self.cluster, "name": name}
        common["framework"] = self.framework
        common["tuning"] = {word: value for word in TUNING if (value := getattr(self, word, None)) is not None}
        common["changes"] = (*changes, *self.changed)
        if self.tokens is not None and common["tuning"].get("samples") is not None:
            raise InputError("--tokens, --samples: both say how long the run is. Leave out one of them.")
        if self.training is not None:
            own = {name: getattr(self, name) for name in ("model", "vocabulary", "chips", "tokens", "microbatch")}
            own["tokens_otherwise"] = tokens_otherwise
            return em.scenario_of_training(self.training, accelerator, **own, **common)
        if self.vocabulary is not None:
            raise InputError("--vocabulary: it belongs to a --training file. A --model says its own.")
        if self.microbatch is not None:
            raise InputError("--microbatch: it belongs to a --training file. Give --set plan.layout.microbatch=2.")
        samples = common["tuning"].get("samples")
        tokens = self.tokens or (tokens_otherwise if samples is None else "1")  # which samples replace
        needed = {"--model": self.model, "--chips": self.chips, "--tokens": tokens}
        if missing := [name for name, value in needed.items() if value is None]:
            raise InputError(f'{", ".join(missing)} is missing. Give it, such as --tokens "1 T", or a --training file.')
        made = em.scenario_of_pieces(*map(str, (self.model, accelerator, self.chips, needed["--tokens"])), **common)
        return made._replace(says_tokens=self.tokens is not None or samples is not None)

    def launch_files(self, output: Sequence[Path] | None, scenario: "Scenario", kind: str | None) -> LaunchFiles:
        """What gives the launch files of a plan; their frameworks are chosen here, before the work.

        **Raises:** `InputError` as `launch_kinds`.
        """
        from energymodel.readers.training_config import read_training_config
        from energymodel.report.launch_file import launch_file, launch_kinds

        suffixes = {path.suffix for path in output or ()}
        is_wanted = kind is not None or suffixes & {*LAUNCHED}
        below = read_training_config(self.training, automatic={}) if self.training and is_wanted else None
        kinds = launch_kinds(suffixes, kind, scenario, below)
        return lambda *plan: {end: partial(launch_file, *plan, kind=own, below=below) for end, own in kinds.items()}


@dataclass(frozen=True)
class Adapted(Parts):
    """A model or a training configuration, and what is trained of it."""

    tuning: str | None = option("Fine-tune it: full, freeze, lora, dora, qlora, qdora or lora-int8.", "KIND")
    rank: int | None = option("Rank of its adapters.", "N", min=1)
    optimizer: str | None = option("Its optimizer, such as adamw_8bit or paged_adamw_8bit.", "NAME")


@dataclass(frozen=True)
class Tuned(Adapted):
    """The same, and the data of its fine-tuning."""

    samples: str | None = option("Samples of its data, instead of --tokens.", "N")
    mean_length: str | None = option("Their mean length, cut to the sequence.", "TOKENS")
    epochs: str | None = option("How often they are trained.", "N")
    padding: str | None = option("packed, or padded to the longest of a micro-batch or to the sequence.", "KIND")


@dataclass(frozen=True)
class Source(Tuned):
    """A scenario, or the parts of one."""

    scenario: str | None = argument(_SCENARIO, "SCENARIO", complete=completion.scenarios, show_default=False)


@dataclass(frozen=True)
class SweepSource(Parts):
    """The same of a sweep, whose --samples are draws; it takes fine-tuning as `energymodel scenario -o` writes it."""

    scenario: str | None = argument(_SCENARIO, "SCENARIO", complete=completion.scenarios, show_default=False)


@dataclass(frozen=True)
class OptionSource(Tuned):
    """The same where the arguments of a command are files: the scenario is an option, and all may be left out."""

    scenario: str | None = option(
        "The run whose files these are: a preset scenario, or a file.", "NAME|FILE", complete=completion.scenarios
    )


@dataclass(frozen=True)
class Objective:
    """What a search minimizes, and within which limits."""

    minimize: str | None = option(
        "energy, time, money, carbon, etp, loss, or a product such as energy*time^2.", "OBJECTIVE"
    )
    limit: list[str] | None = option(
        "Limit time, facility_power, money, carbon, loss, chips or any output; repeatable.", "NAME=VALUE"
    )


@dataclass(frozen=True)
class Question(Objective):
    """The same, and which numbers it may choose."""

    vary: list[str] | None = option("Let a number vary between bounds; repeatable.", "PATH=LOW:HIGH")


@dataclass(frozen=True)
class PlanQuestion(Question):
    """The same of a plan, some of whose numbers are kept."""

    fix: list[str] | None = option("Keep a number of the plan; repeatable.", "PATH")

    @property
    def words(self) -> tuple[Any, Any, Any, Any]:
        """The question as `with_question` and searches take it."""
        return self.minimize, self.limit, self.vary, self.fix or ()


def read_scenario(source: str, changes: list[str] | None, cluster: str | None = None) -> "Scenario":
    """A preset, a TOML file, or the scenario within the JSON of an earlier run; on another cluster if one is named."""
    return replace(em.load_scenario(_stored(source), changes or [], cluster), source=shlex.quote(source))


def _stored(source: str) -> str | Path | Mapping[str, Any]:
    """What `load_scenario` reads: a preset's name, a TOML file, or the tables within the JSON of an earlier run."""
    from energymodel.readers.text_file import is_file, read_json

    path = Path(source)
    if path.suffix != ".json":
        return path if is_file(path) else source
    if not is_file(path):
        raise InputError(
            f"{path}: no such file. Give a scenario file or a preset name; `energymodel presets` lists them."
        )
    expected = "that `energymodel evaluate -o run.json` wrote"
    try:
        run = read_json(path)
    except InputError as error:
        raise InputError(f"{error} Give the JSON {expected}, or a scenario.") from None
    if "model_type" in run or "architectures" in run:
        raise InputError(
            f"{path}: it describes a model, not a run. Give it as --model, with --accelerator and --chips."
        )
    scenario = run.get("scenario", run)
    if not isinstance(scenario, dict):
        raise InputError(f"{path}: holds no scenario. Give a file {expected}.")
    return {"name": path.stem, **scenario}
