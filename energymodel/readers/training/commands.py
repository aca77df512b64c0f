"""Settings that shell scripts, command lines and printed lists hand to a framework.

Nothing is run: assignments of the script are put in for its variables, and sums of whole numbers are worked out. For
Megatron-LM every `--name value` counts, whether it stands on the command line, in an array or in a text. Hydra,
Megatron-Bridge, NeMo, torchtitan and MaxText take `section.name=value`, which goes into the table that its name draws.
"""

import itertools
import re
from types import SimpleNamespace
from typing import Any

import yaml

from energymodel.errors import InputError
from energymodel.readers.expressions import constant_of, data_file
from energymodel.readers.training.keys import is_harmless, quoted
from energymodel.units import whole_number

PATTERNS = SimpleNamespace(
    **{name: re.compile(pattern) for name, pattern in data_file(__file__, "commands.toml").items()}
)
MOST_TOKENS = 200_000
LONGEST_TEXT = 4000  # characters of a text whose variables are put in, before and after
CONFIGURATIONS = ("--config", "--config_path", "--config-path")
"""Arguments that name the file with most settings."""
UNLIKE = re.compile(r".*_rank|main_process|master_|.*port|include|exclude|output|num_(nodes|gpus|processes)")
"""Arguments in which two commands of one run differ."""
HANDED = {"#sbatch_benchmarking", "#interactive_benchmarking"}
"""Scripts that take their settings from variables."""
LAUNCHER = ("num_processes", "nproc_per_node", "num_gpus", "num_machines", "nnodes", "num_nodes")
"""Arguments of launchers that count accelerators or nodes."""
STOPS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1", "then", "fi", "do", "done", ")", "\\")
FEWEST, MOST = 2, 5000
"""Settings of a command: fewer are a word with a dot by chance."""


def read_arguments(text: str, where: str) -> dict[str, Any]:
    """Arguments by name with underscores: a text, a list of texts, or True for a bare switch; the last one wins.

    Keys that begin with `#` say what the launcher does: `#nodes`, `#per_node`.
    """
    printed = {name: value.strip() for name, value in PATTERNS.printed.findall(text)}
    if len(printed) > 20:  # the list that Megatron-LM prints when it starts
        words = {"True": True, "False": False}
        return {name: words.get(value, value) for name, value in printed.items() if value != "None"}
    if (match := PATTERNS.other_programs.search(text)) is not None:
        raise InputError(
            f'"{where}" starts {match[0]}: a model with an encoder, state-space layers or images cannot be described. '
            "Describe the nearest transformer with --model, or by its shape in a scenario."
        )
    launcher = _launched(text)
    arguments: dict[str, Any] = {}
    _collect(*_prepared(text), arguments, where, 0)
    for name, key in (("nproc_per_node", "#per_node"), ("nnodes", "#nodes")):
        value = arguments.pop(name, None)
        if isinstance(value, str) and (number := whole_number(value)) is not None:
            launcher[key] = number
    return arguments | launcher


def read_command(text: str, where: str) -> dict[str, Any]:
    """What a script hands to a trainer: arguments by name, and settings in the table that their path draws.

    Keys that begin with `#` say what is started, `#swift` or `#verl.trainer.main_ppo`, and what the launcher does.
    """
    body, variables = _prepared(text)
    table: dict[str, Any] = {}
    _collect(body, variables, table, where, 0)
    table |= read_overrides(text, where) or {}
    for command, what, *others in PATTERNS.program.findall(body):
        names = (*others, f"{command}_{what}" if what else command)
        table |= {f"#{name}": None for name in names if name}
    if HANDED & table.keys():
        lines = " ".join(line for line in body.splitlines() if PATTERNS.program.search(line))
        table |= variables | {name: _bare(_filled(value, variables)) for name, value in PATTERNS.handed.findall(lines)}
    return _launched_on(table, body, variables)


def check_command(text: str, where: str) -> None:
    """Check that a script starts one run, and does not leave its settings to a file.

    **Raises:** `InputError` that names the file, which is not followed, or what its commands have otherwise.
    """
    body, variables = _prepared(text)
    seen: dict[str, Any] = {}
    for line in filter(PATTERNS.program.search, body.splitlines()):
        words = [_bare(word) for word in PATTERNS.word.findall(line)]
        for before, word in itertools.pairwise(words):
            is_settings = before in CONFIGURATIONS or not before.startswith("-")
            if is_settings and PATTERNS.settings_file.fullmatch(word):
                raise _settings_elsewhere(where, word)
        own: dict[str, Any] = dict(PATTERNS.handed.findall(line))
        _collect(line, variables, own, where, 0)
        for key in own.keys() & seen.keys():
            if own[key] != seen[key] and not is_harmless(key) and not UNLIKE.match(key):
                raise InputError(
                    f'"{where}" starts several runs, with --{key} {quoted(seen[key])} and {quoted(own[key])}. '
                    "Keep the command of one run."
                )
        seen |= own


def _launched_on(table: dict[str, Any], body: str, variables: dict[str, str]) -> dict[str, Any]:
    """The table with nodes and accelerators of a node, of arguments of the launcher or variables of the environment."""
    values = {name: _bare(_filled(value, variables)) for name, value in PATTERNS.environment.findall(body)}
    values = variables | values
    visible = next((value for name, value in values.items() if name.endswith("VISIBLE_DEVICES")), "")
    listed = re.fullmatch(r"(?:\w+:)?(\d+(?:,\d+)*)", str(table.get("include") or visible))
    given = {name: table.pop(name, None) for name in LAUNCHER}
    total, each = given["num_processes"], given["nproc_per_node"] or given["num_gpus"] or values.get("NPROC_PER_NODE")
    each = each or (str(len(listed[1].split(","))) if listed else None)
    nodes = given["num_machines"] or given["nnodes"] or given["num_nodes"] or values.get("NNODES") or 1
    count, machines = whole_number(str(total or each)), 1 if total else whole_number(str(nodes))
    return table | ({"#nodes": machines, "#per_node": count} if count and machines else _launched(body))


def _settings_elsewhere(where: str, file: str) -> InputError:
    return InputError(
        f'"{where}" takes most settings from "{file[-100:]}", which is not followed. Give that file instead, with '
        "the settings of the command written into it."
    )


def read_overrides(text: str, where: str) -> dict[str, Any] | None:
    """The table that the settings `section.name=value` of a command draw; None if there are none.

    Keys that begin with `#` say what the launcher does: `#nodes`, `#per_node`.

    **Raises:** `InputError` if the command takes its settings from another file, which is not followed.
    """
    body, variables = _prepared(text)
    maxtext = PATTERNS.maxtext.search(body)
    table: dict[str, Any] = {}
    count, waiting = 0, ""
    for word in map(_bare, PATTERNS.word.findall(body)[:MOST_TOKENS]):
        match = PATTERNS.dotted.fullmatch(word) or (PATTERNS.plain if maxtext else PATTERNS.section).fullmatch(word)
        if match is None:
            if waiting and not word.startswith("-"):
                _put(table, waiting, _filled(word, variables))
            waiting = ""
            continue
        count += 1
        if count > MOST:
            raise InputError(f'"{where}" sets more than {MOST} values; is it the right file?')
        if match[2] is not None:
            _put(table, match[1], _filled(match[2], variables))
        waiting = match[1] if match[2] is None and word.startswith("--") else ""
    if count < FEWEST:
        return None
    base = match[1] if (match := PATTERNS.base_file.search(body)) else None
    if maxtext and (match := PATTERNS.maxtext_file.search(body[maxtext.start() :])) and match[1] != "base":
        base = f"{match[1]}.yml"
    if base is not None:
        raise _settings_elsewhere(where, base)
    if recipe := PATTERNS.recipe.search(body):
        table["recipe"] = recipe[1]
    table |= _launched(text)
    for name, value in PATTERNS.processes.findall(body[:100_000]):
        if re.fullmatch(r"[1-9]\d{0,5}", number := _bare(_filled(value, variables))):
            table["#nodes" if name == "nnodes" else "#per_node"] = int(number)
    if "#per_node" in table:
        table.setdefault("#nodes", 1)
    return {"base_config": "base.yml", **table} if maxtext else table


def _put(table: dict[str, Any], name: str, text: str) -> None:
    """Set a value of the table, under its path of names."""
    *path, last = name.split(".")
    for key in path:
        if not isinstance(table.get(key), dict):
            table[key] = {}
        table = table[key]
    bare = _bare(text)
    try:
        table[last] = yaml.safe_load(bare) if len(bare) <= 400 and not re.search(r"[&*]\w", bare) else bare
    except (yaml.YAMLError, ValueError, RecursionError):
        table[last] = bare


def _prepared(text: str) -> tuple[str, dict[str, str]]:
    """A script without comments and with its lines joined, and the variables that it sets."""
    body = re.sub(r"(^|[ \t])#[^\n]*", r"\1", text, flags=re.M).replace("\\\r\n", " ").replace("\\\n", " ")
    variables: dict[str, str] = {}
    for name, value in PATTERNS.assigned.findall(body):
        variables[name] = _filled(_bare(value), variables)
    body = PATTERNS.expr.sub(lambda match: _worked_out(_filled(match[1], variables), variables) or match[0], body)
    return body, variables


def _collect(body: str, variables: dict[str, str], arguments: dict[str, Any], where: str, depth: int) -> None:
    """Add the arguments of a text, and of the texts in quotes in it."""
    tokens = PATTERNS.token.findall(body)
    if len(tokens) > MOST_TOKENS:
        raise InputError(f'"{where}" holds more than {MOST_TOKENS} words; is it the right file?')
    name: str | None = None
    for token in tokens:
        quoted = token[0] in "\"'"
        bare = token[1:-1] if quoted and len(token) > 1 else token
        if token == "\n":
            name = None
        elif quoted and depth < 3 and name is None and PATTERNS.options.search(bare):
            _collect(bare, variables, arguments, where, depth + 1)
        elif not quoted and (match := PATTERNS.name.match(token)):
            key = match[1].replace("-", "_")
            arguments[key] = True if match[2] is None else _filled(match[2].rstrip(")"), variables)
            name = key if match[2] is None else None
        elif not quoted and (token in STOPS or token.startswith("--") or token.rstrip(")").endswith((".py", "[@]}"))):
            name = None
        elif name is not None:
            word = bare if quoted else _trimmed(bare)
            value = _filled(word, variables)
            if not value.strip() and bare.startswith("$"):
                continue  # a variable that is empty
            if value != bare and PATTERNS.options.search(value):
                name = None  # a variable that holds arguments; they count where it is set
                continue
            old = arguments[name]
            arguments[name] = value if old is True else [*old, value] if isinstance(old, list) else [old, value]
            if not quoted and bare.endswith((")", ";")) and bare.count("(") < bare.count(")"):
                name = None


def _filled(text: str, variables: dict[str, str]) -> str:
    """A text with the variables that the script sets, or their defaults, in place of their names."""

    def put(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        if name in variables:
            return variables[name]
        return match[2].strip("\"'") if match[2] is not None else match[0]

    for _ in range(9):
        if "$" not in text or len(text) > LONGEST_TEXT:
            break
        filled = PATTERNS.variable.sub(put, text)
        fuller = PATTERNS.sum.sub(lambda match: _worked_out(match[1], variables) or match[0], filled)
        # Variables of variables: each round may be many times as long as the last.
        if fuller == text or len(fuller) > LONGEST_TEXT:
            break
        text = fuller
    return text


def _worked_out(text: str, variables: dict[str, str]) -> str | None:
    """The value of a sum of whole numbers and variables with + - * / and parentheses; None for anything else."""
    text = re.sub(r"[A-Za-z_]\w*", lambda match: variables.get(match[0], match[0]), text).strip()
    value = constant_of(text[:LONGEST_TEXT])
    return str(value) if isinstance(value, int) else None


def _bare(text: str) -> str:
    """A text without the quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0] else text


def _trimmed(text: str) -> str:
    """A word without the closing parentheses and semicolons that belong to the shell."""
    text = text.rstrip(";")
    while text.endswith(")") and text.count("(") < text.count(")"):
        text = text[:-1]
    return text


def _launched(text: str) -> dict[str, int]:
    """Nodes and accelerators of a node as the lines for Slurm say."""
    launcher: dict[str, int] = {}
    for long, short, value in PATTERNS.batch.findall(text):
        digits = re.search(r"(?<!\d)(\d{1,6})$", value)
        if digits and (long == "nodes" or short):
            launcher["#nodes"] = int(digits[1])
        elif digits and (long != "ntasks-per-node" or "#per_node" not in launcher):
            launcher["#per_node"] = int(digits[1])
    return launcher
