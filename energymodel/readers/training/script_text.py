"""Arguments for Megatron-LM in shell scripts, command lines and printed lists.

Nothing is run: assignments of the script are put in for its variables, sums of whole numbers are worked out, and every
`--name value` counts, whether it stands on the command line, in an array or in a text.
"""

import ast
import operator
import re
from typing import Any

from energymodel.errors import InputError
from energymodel.units import whole_number

ASSIGNED = re.compile(
    r"^[ \t]*(?:export[ \t]+|local[ \t]+)?([A-Za-z_]\w*)="
    r"(\"[^\"]*\"|'[^']*'|\$\(\([^\n]{1,200}?\)\)|[^\s()]*)[ \t]*;?[ \t]*$",
    re.MULTILINE,
)
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*|\d)(?::?[-=]([^{}]*))?\}|\$([A-Za-z_]\w*)")
SUM = re.compile(r"\$\(\(([^$\n]{1,200}?)\)\)")
TOKEN = re.compile(r"\n|\"[^\"]*\"|'[^']*'|[^\s\"']+")
NAME = re.compile(r"--([A-Za-z][\w-]*)(?:=(.*))?$", re.S)
PRINTED = re.compile(r"^(?:\[[^\]\n]*\]:?|\d+:)?[ \t]+([a-z]\w*) \.{2,} (.*)$", re.M)
BATCH = re.compile(r"^#SBATCH\s+(?:--(nodes|gpus-per-node|ntasks-per-node|gres|gpus)[= ]|-(N)\s+)(\S+)", re.M)
OTHER_PROGRAMS = re.compile(r"pretrain_(bert|t5|mamba|hybrid|vision\w*|vlm|ict|retro|mllm|dino)\.py")
"""Programs of Megatron-LM that train other models than decoders."""
MOST_TOKENS = 200_000
LONGEST_TEXT = 4000
"""Characters of a text whose variables are put in, before and after."""
STOPS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1", "then", "fi", "do", "done", ")", "\\")


def read_arguments(text: str, where: str) -> dict[str, Any]:
    """Arguments by name with underscores: a text, a list of texts, or True for a bare switch; the last one wins.

    Keys that begin with `#` say what the launcher does: `#nodes`, `#per_node`.
    """
    printed = {name: _value_of(value) for name, value in PRINTED.findall(text)}
    if len(printed) > 20:
        return {name: value for name, value in printed.items() if value is not None}
    if (match := OTHER_PROGRAMS.search(text)) is not None:
        raise InputError(
            f'"{where}" starts {match[0]}: a model with an encoder, state-space layers or images cannot be described. '
            "Describe the nearest transformer with --model, or by its shape in a scenario."
        )
    launcher = launched(text)
    body, variables = prepared(text)
    arguments: dict[str, Any] = {}
    _collect(body, variables, arguments, where, 0)
    for name, key in (("nproc_per_node", "#per_node"), ("nnodes", "#nodes")):
        value = arguments.pop(name, None)
        number = whole_number(value) if isinstance(value, str) else None
        if number is not None:
            launcher[key] = number
    return arguments | launcher


def prepared(text: str) -> tuple[str, dict[str, str]]:
    """A script without comments and with its lines joined, and the variables that it sets."""
    body = without_comments(text).replace("\\\r\n", " ").replace("\\\n", " ")
    variables: dict[str, str] = {}
    for name, value in ASSIGNED.findall(body):
        variables[name] = filled(bare_text(value), variables)
    return body, variables


def _collect(body: str, variables: dict[str, str], arguments: dict[str, Any], where: str, depth: int) -> None:
    """Add the arguments of a text, and of the texts in quotes in it."""
    tokens = TOKEN.findall(body)
    if len(tokens) > MOST_TOKENS:
        raise InputError(f'"{where}" holds more than {MOST_TOKENS} words; is it the right file?')
    name: str | None = None
    for token in tokens:
        quoted = token[0] in "\"'"
        bare = token[1:-1] if quoted and len(token) > 1 else token
        if token == "\n":
            name = None
        elif quoted and depth < 3 and name is None and re.search(r"(^|\s)--[A-Za-z]", bare):
            _collect(bare, variables, arguments, where, depth + 1)
        elif not quoted and (match := NAME.match(token)):
            key = match[1].replace("-", "_")
            arguments[key] = True if match[2] is None else filled(match[2].rstrip(")"), variables)
            name = key if match[2] is None else None
        elif not quoted and (token in STOPS or token.endswith(".py") or token.rstrip(")").endswith("[@]}")):
            name = None
        elif name is not None:
            value = filled(bare if quoted else _trimmed(bare), variables)
            if not value.strip() and bare.startswith("$"):
                continue  # a variable that is empty
            if value != bare and re.search(r"(^|\s)--[A-Za-z]", value):
                name = None  # a variable that holds arguments; they count where it is set
                continue
            old = arguments[name]
            arguments[name] = value if old is True else [*old, value] if isinstance(old, list) else [old, value]
            if not quoted and bare.endswith((")", ";")) and bare.count("(") < bare.count(")"):
                name = None


def filled(text: str, variables: dict[str, str], depth: int = 0) -> str:
    """A text with the variables that the script sets, or their defaults, in place of their names."""
    if depth > 8 or "$" not in text or len(text) > LONGEST_TEXT:
        return text

    def put(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        if name in variables:
            return variables[name]
        return match[2].strip("\"'") if match[2] is not None else match[0]

    fuller = VARIABLE.sub(put, text)
    fuller = SUM.sub(lambda match: _worked_out(match[1], variables) or match[0], fuller)
    if len(fuller) > LONGEST_TEXT:
        return text  # variables of variables: each round may be many times as long as the last
    return fuller if fuller == text else filled(fuller, variables, depth + 1)


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def _worked_out(text: str, variables: dict[str, str]) -> str | None:
    """The value of a sum of whole numbers and variables with + - * / and parentheses; None for anything else."""
    text = re.sub(r"[A-Za-z_]\w*", lambda match: variables.get(match[0], match[0]), text).strip()
    try:
        value = _sum(ast.parse(text[:LONGEST_TEXT], mode="eval").body)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return str(value) if abs(value) < 10**15 else None


def _sum(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_sum(node.left), _sum(node.right))
    raise ValueError("no sum of whole numbers")


def without_comments(text: str) -> str:
    """The text without what follows a # at the beginning of a word."""
    return re.sub(r"(^|[ \t])#[^\n]*", r"\1", text, flags=re.M)


def bare_text(text: str) -> str:
    """A text without the quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0] else text


def _trimmed(text: str) -> str:
    """A word without the closing parentheses and semicolons that belong to the shell."""
    text = text.rstrip(";")
    while text.endswith(")") and text.count("(") < text.count(")"):
        text = text[:-1]
    return text


def _value_of(text: str) -> Any:
    """A value of the list that Megatron-LM prints when it starts."""
    text = text.strip()
    return {"None": None, "True": True, "False": False}.get(text, text)


def launched(text: str) -> dict[str, int]:
    """Nodes and accelerators of a node as the lines for Slurm say."""
    launcher: dict[str, int] = {}
    for long, short, value in BATCH.findall(text):
        digits = re.search(r"(?<!\d)(\d{1,6})$", value)
        if not digits:
            continue
        number = int(digits[1])
        if long == "nodes" or short:
            launcher["#nodes"] = number
        elif long != "ntasks-per-node" or "#per_node" not in launcher:
            launcher["#per_node"] = number
    return launcher
