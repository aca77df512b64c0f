"""Launch files: a plan as the configuration of a training framework, with what it cannot carry in comments."""

import dataclasses
import json
import shlex
from collections.abc import Collection, Mapping
from textwrap import wrap
from typing import Any

import yaml

from energymodel.errors import InputError, suggest
from energymodel.readers.training.config import TrainingConfig
from energymodel.readers.training.interpreter import FIELDS, framework
from energymodel.readers.written_config import WRITTEN, write_training_config
from energymodel.report import toml_text
from energymodel.report.answers.plan_fields import plan_fields
from energymodel.report.number import plain
from energymodel.scenarios.clock_scale import ClockScale
from energymodel.scenarios.components import assemble, resolve
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import Scenario
from energymodel.scenarios.training_file import planned_config
from energymodel.system.plan import PRECISIONS, TrainingPlan
from energymodel.system.training_system import TrainingSystem

OF_FILE = ("plan.chips", "plan.batch", "plan.goal", "plan.layout.", "plan.trained_share")
"""Numbers of a plan that are in the file, or refused."""
ALWAYS = {"plan.clock", "plan.power_cap", "plan.coolant_temperature"}
"""Numbers of a plan of which a comment says what they are; of others only where they are not 0 or 1."""


def launch_kinds(
    suffixes: Collection[str], kind: str | None, scenario: Scenario, below: TrainingConfig | None = None
) -> dict[str, str]:
    """The framework whose configuration each file is to be, by suffix, for those that are files of a framework.

    The one that is named, else that of the configuration `below`, else the only one with such files, whose software
    preset is that of the scenario if several have them. JSON is the answer, unless a framework with JSON is named.

    **Raises:** `InputError` for an unknown framework, one that has none of the files, and where several remain.
    """
    if kind is not None and kind not in WRITTEN:
        raise InputError(f'--launch: unknown framework "{kind}". {suggest(kind, WRITTEN)}')
    named = None if kind is None else framework(kind)["suffix"]
    kinds: dict[str, str] = {}
    title = scenario.tables["system"]["software"].get("title")
    for suffix in sorted({*suffixes} - ({".json"} - {named})):
        fitting = [name for name in WRITTEN if framework(name)["suffix"] == suffix.replace(".yml", ".yaml")]
        if not fitting:
            continue
        titles = {name: read_preset("software", framework(name)["software"])["title"] for name in fitting}
        chosen = [name for name in (kind, below.kind if below else None) if name in fitting][:1]
        left = chosen or [name for name in fitting if titles[name] == title and len(fitting) > 1] or fitting
        if len(left) > 1:
            raise InputError(f"{suffix}: {', '.join(left)} read such files. Choose one, such as --launch {left[0]}.")
        kinds[suffix] = str(left[0])
    if kind is not None and kind not in kinds.values():
        raise InputError(f"--launch {kind}: none of its files is to be written. Add -o launch{named}.")
    return kinds


def launch_file(
    scenario: Scenario, plan: TrainingPlan, tokens: float, kind: str, below: TrainingConfig | None = None
) -> str:
    """The text of the configuration of a framework that runs a plan, which reads back as this plan.

    Arguments are those of `planned_config`, and `kind`, the framework. What a file cannot carry is in comments, in JSON
    in its description.

    **Raises:** `InputError` for what the framework cannot express, and what its software does not run.
    """
    _check_software(scenario, plan, kind)
    config = planned_config(scenario, plan, tokens, below)
    if below is not None and below.kind != kind:  # whose names are its own
        config = dataclasses.replace(config, optimizer=None, tokenizer=None, precision_recipe=None)
    elif below is not None and not below.model and config.model_name == below.model_name:
        config = dataclasses.replace(config, model={})  # the file names it, and goes on to
    table, lacking = write_training_config(config, kind, round(float(scenario.system.node.chips)))
    comments = [f"{scenario.title}: a plan of energymodel as a configuration of {kind}."]
    comments += [f"{note[0].upper()}{note[1:]}." for note in config.notes]
    return configuration_text(table, framework(kind)["suffix"], comments + _comments(scenario, plan, lacking))


def _check_software(scenario: Scenario, plan: TrainingPlan, kind: str) -> None:
    """Check a plan under the software of a framework, where the scenario has another one."""
    software = framework(kind)["software"]
    if read_preset("software", software)["title"] == scenario.tables["system"]["software"].get("title"):
        return
    tables = resolve({**scenario.tables["system"], "software": software}, TrainingSystem, "system")
    system, tables = assemble(tables, TrainingSystem, "system", {}), {**scenario.tables, "system": tables}
    try:
        dataclasses.replace(scenario, system=system, plan=plan, tables=tables).check_together()
    except InputError as error:
        raise InputError(f"{kind}: {error} To plan for it, add --set system.software={software}.") from None


def _comments(scenario: Scenario, plan: TrainingPlan, lacking: Mapping[str, Any]) -> list[str]:
    """Sentences on what the file does not hold."""
    clock = ClockScale.of(scenario.system.accelerator).megahertz(float(plan.clock))
    apart = [
        f"{field.title} {plain(field.value, field.unit)}" + (f" ({clock})" if field.name == "plan.clock" else "")
        for field in plan_fields(plan)
        if field.name in ALWAYS
        or (field.value not in (0.0, 1.0) and (field.title in PRECISIONS or not field.name.startswith(OF_FILE)))
    ]
    has_model = "layers" not in lacking
    asked = [f"{name.replace('_', ' ')} {value}" for name, value in lacking.items() if has_model or name in FIELDS]
    asked += [] if has_model else ["the model"]
    parts = {"Not in this file": apart, "Not in this file, and asked for when it is read": asked}
    return [f"{what}: {', '.join(named)}." for what, named in parts.items() if named]


def configuration_text(table: dict[str, Any], suffix: str, comments: list[str]) -> str:
    """A table of `write_training_config` as the text of a file with such a suffix, below comments."""
    table, comments = dict(table), [*comments, *([str(table["#"])] if "#" in table else [])]
    head = "".join(f"# {line}\n" for comment in comments for line in wrap(comment, 118))
    nodes, each, _ = (table.pop(name, None) for name in ("#nodes", "#per_node", "#"))
    if suffix == ".json":
        return json.dumps({"description": comments, **table}, indent=2) + "\n"
    if suffix == ".toml":
        return f"{head}\n{toml_text.dumps(table)}"
    if suffix == ".yaml":
        return f"{head}\n{yaml.safe_dump(table, sort_keys=False)}"
    launcher = f"torchrun $RENDEZVOUS --nnodes {nodes} --nproc-per-node {each}" if nodes else "torchrun"
    options = [(f"--{name.replace('_', '-')}", value) for name, value in table.items() if value is not False]
    texts = [[] if value is True else value if isinstance(value, list) else [str(value)] for _, value in options]
    lines = [shlex.join([name, *values]) for (name, _), values in zip(options, texts, strict=True)]
    head += "# RENDEZVOUS: how the nodes find each other, such as --rdzv-backend c10d --rdzv-endpoint HOST:29500.\n"
    head += "# Arguments of data, tokenizer and learning rate: give them to this script.\n"
    return f"#!/usr/bin/env bash\n{head}\n" + " \\\n  ".join([f'{launcher} pretrain_gpt.py "$@"', *lines]) + "\n"
