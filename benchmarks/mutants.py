"""Wrong formulas that the tests notice: one operator or number is changed at random.

Each mutant is one small change of `energymodel/{system,performance,learning,solver}`, drawn from a seed, in a copy of
the tree. Tests that import the changed file run first, then those of its package and of whole runs, then the rest of
the quick tests; the first failure ends it. Text, types and what a person only reads are not changed.
"""

import argparse
import ast
import concurrent.futures
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("system", "performance", "learning", "solver")
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NAMES = {
    "minimum": "maximum",
    "min": "max",
    "floor": "ceil",
    "any": "all",
    "log": "log1p",
    "exp": "expm1",
    "sum": "max",
    "sqrt": "square",
    "zeros": "ones",
    "zeros_like": "ones_like",
    "logical_and": "logical_or",
}
NAMES |= {new: old for old, new in NAMES.items() if old != "sum"}
NEGATED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
WORDS_ONLY = {"doc", "metadata", "message", "name", "help", "description"}  # keywords that hold words for a person
LARGE = 1e6  # a number above this is doubled, others grow by one
STOP_AFTER = 900  # seconds: a search that a mutant keeps from ending is caught
MOST_MEMORY = 8 * 2**20  # KiB: so is a list that a mutant keeps growing, before the system stops another process


class Mutant(NamedTuple):
    """One change of one file."""

    path: Path
    line: int
    before: str
    after: str
    source: str


class Verdict(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    caught: bool
    by: str
    seconds: float


def computing_nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.FunctionDef | None]]:
    """Nodes whose value a run depends on, each with its function: no text, types, errors, overloads or declarations."""

    def walk(node: ast.AST, function: ast.FunctionDef | None) -> Iterator[tuple[ast.AST, ast.FunctionDef | None]]:
        yield node, function
        if isinstance(node, ast.FunctionDef):
            if any(
                "abstractmethod" in ast.unparse(decorator) or "overload" in ast.unparse(decorator)
                for decorator in node.decorator_list
            ):
                return
            for part in (*node.args.defaults, *(default for default in node.args.kw_defaults if default), *node.body):
                yield from walk(part, node)
            return
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                yield from walk(part, None)
            return
        for name, value in ast.iter_fields(node):
            if name == "annotation" or (isinstance(node, ast.keyword) and node.arg in WORDS_ONLY):
                continue
            for part in value if isinstance(value, list) else [value]:
                words = isinstance(part, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert)
                if isinstance(part, ast.AST) and not words:
                    yield from walk(part, function)

    yield from walk(tree, None)


def changes(node: ast.AST, function: ast.FunctionDef | None) -> Iterator[ast.AST]:
    """Each way to change a node by one operator, number or name."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OPERATORS and not _of_types(node):
            yield _with(node, op=OPERATORS[type(op)]())
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            yield _with(node, ops=[OPERATORS[type(op)]()])
            if isinstance(op, NEGATED):
                yield _with(node, left=right, comparators=[left])
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield _with(node, body=orelse, orelse=body)
        case ast.If(test=test) | ast.While(test=test):
            yield ast.UnaryOp(ast.Not(), test)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1 if abs(value) < LARGE else 2 * value)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="jnp" | "np"), attr="where"), args=[condition, first, other]
        ):
            yield _with(node, args=[condition, other, first])
        case ast.Call(func=ast.Attribute(attr="clip"), args=[value, lower, upper]):  # value and lower commute
            yield _with(node, args=[value, upper, lower])
        case ast.Call(args=[ast.AST() as first, ast.AST() as other, *rest]) if not _of_types(node):
            words = any(isinstance(getattr(part, "value", None), str) for part in (first, other))
            if ast.dump(first) != ast.dump(other) and not words and not _commutes(node):
                yield _with(node, args=[other, first, *rest])
        case ast.Attribute(attr=attr) if attr in NAMES:
            yield _with(node, attr=NAMES[attr])
        case ast.Name(id=name, ctx=ast.Load()) if function is not None:
            arguments = [
                argument.arg for argument in (*function.args.args, *function.args.kwonlyargs) if argument.arg != "self"
            ]
            if name in arguments and len(arguments) > 1:
                yield ast.Name(arguments[arguments.index(name) - 1], ast.Load())
            elif name in NAMES:
                yield ast.Name(NAMES[name], ast.Load())


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _of_types(node: ast.AST) -> bool:
    """Whether it checks or names types: `int | float`, `isinstance`, `cast`, `TypeVar`."""
    text = ast.unparse(node)
    return bool(re.match(r"(isinstance|issubclass|cast|TypeVar|NewType|getattr|hasattr)\(", text)) or (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and bool(
            re.fullmatch(r"[\w.\[\]]+( \| [\w.\[\]]+)+", text) and re.search(r"\b(None|[A-Z]\w+|int|float)\b", text)
        )
    )


def _commutes(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in {"minimum", "maximum", "min", "max", "logaddexp", "logical_and", "logical_or", "isclose", "hypot"}


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()
    for node, function in computing_nodes(ast.parse(text)):
        for changed in changes(node, function):
            target = node.test if isinstance(node, ast.If | ast.While) else node
            assert isinstance(target, ast.expr)
            begin = starts[target.lineno - 1] + target.col_offset
            end = starts[(target.end_lineno or target.lineno) - 1] + (target.end_col_offset or 0)
            before, after = raw[begin:end].decode(), ast.unparse(changed)
            source = (raw[:begin] + f"({after})".encode() + raw[end:]).decode()
            if isinstance(node, ast.Constant | ast.Name | ast.Attribute):
                source = (raw[:begin] + after.encode() + raw[end:]).decode()
            yield Mutant(path.relative_to(ROOT), target.lineno, " ".join(before.split()), after, source)


def draw(number: int, seed: int) -> list[Mutant]:
    """A random sample of all mutants, every mutant as likely as every other."""
    result = [
        mutant
        for package in PACKAGES
        for path in sorted((ROOT / "energymodel" / package).glob("*.py"))
        for mutant in mutants_of(path)
    ]
    return random.Random(seed).sample(result, min(number, len(result)))


def stages(mutant: Mutant, tree: Path, near: bool) -> list[list[str]]:
    """Test files in the order in which they are likely to notice, in groups that run together."""
    module = ".".join(mutant.path.with_suffix("").parts)
    files = sorted((tree / "tests").rglob("test_*.py"))
    of_package = [file for file in files if file.parent.name == mutant.path.parts[1]]
    of_module = [file for file in files if module in imported(file)]
    groups = (
        [file for file in of_package if file in of_module],
        [*of_package, *(file for file in files if file.stem == "test_worked_numbers")],
        [file for file in files if file.parent.name == "system" or file.stem == "test_korthikanti"],
        *([] if near else [of_module, files]),
    )
    chosen: list[list[str]] = []
    for group in groups:
        seen = {name for names in chosen for name in names}
        names = [file.relative_to(tree).as_posix() for file in group]
        chosen.append([name for name in dict.fromkeys(names) if name not in seen])
    return [names for names in chosen if names]


def imported(file: Path) -> set[str]:
    """Modules that a file names in its imports."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            result |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            result |= {name.name for name in node.names}
    return result


def run_tests(tree: Path, cache: Path, arguments: list[str], limit: float) -> tuple[bool, str]:
    """Whether the tests pass in a copy of the tree, and the first one that does not."""
    bounded = ["sh", "-c", f'ulimit -d {MOST_MEMORY}; exec "$0" "$@"', sys.executable]
    command = [*bounded, "-m", "pytest", "-q", "-x", "-n", "0", "-o", f"cache_dir={cache}", "--tb=no", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'kernels'}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return False, f"no end after {limit:.0f} s"
    if ran.returncode == 0:
        return True, ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return False, failed[1] if failed else (ran.stderr or ran.stdout).strip().splitlines()[-1][:100]


def judge(mutant: Mutant, trees: Queue[Path], cache: Path, near: bool) -> Verdict:
    """Run the tests against a mutant until one fails."""
    tree, started = trees.get(), time.perf_counter()
    file = tree / mutant.path
    original = file.read_text(encoding="utf-8")
    try:
        file.write_text(mutant.source, encoding="utf-8")
        for stage in stages(mutant, tree, near):
            passed, by = run_tests(tree, cache, stage, STOP_AFTER)
            if not passed:
                return Verdict(mutant, True, by, time.perf_counter() - started)
        return Verdict(mutant, False, "", time.perf_counter() - started)
    finally:
        file.write_text(original, encoding="utf-8")
        trees.put(tree)


def copy_tree(folder: Path) -> Path:
    """A copy of what git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # the tests ask git which files there are
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Count how many random changes of a formula a test catches.")
    parser.add_argument("--number", type=int, default=100, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at the same time")
    parser.add_argument("--only", default="", help="regular expression of FILE:LINE: BEFORE -> AFTER")
    parser.add_argument("--near", action="store_true", help="only the tests of the package and of whole runs")
    arguments = parser.parse_args()
    mutants = [
        mutant for mutant in draw(arguments.number, arguments.seed) if re.search(arguments.only, describe(mutant))
    ]
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        trees: Queue[Path] = Queue()
        for job in range(arguments.jobs):
            trees.put(copy_tree(Path(folder) / f"tree{job}"))
        unchanged = dict.fromkeys(
            name for mutant in mutants for stage in stages(mutant, ROOT, near=True) for name in stage
        )
        passed, by = run_tests(trees.queue[0], cache, list(unchanged), STOP_AFTER * len(PACKAGES))
        if not passed:
            raise SystemExit(f"{by} fails without a mutant: fix it first")
        started = time.perf_counter()
        caught = 0
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            verdicts = [pool.submit(judge, mutant, trees, cache, arguments.near) for mutant in mutants]
            for number, done in enumerate(concurrent.futures.as_completed(verdicts), 1):
                verdict = done.result()
                caught += verdict.caught
                word = f"caught by {verdict.by}" if verdict.caught else "SURVIVED"
                print(f"{number:3} {describe(verdict.mutant)}: {word} ({verdict.seconds:.0f} s)", flush=True)
        print(f"{caught} of {len(mutants)} mutants caught in {(time.perf_counter() - started) / 60:.0f} min.")


def describe(mutant: Mutant) -> str:
    """Place and change of a mutant in one line."""
    return f"{mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}"


if __name__ == "__main__":
    main()
