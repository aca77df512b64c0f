"""A command reaches every public function and class of the model: what no command reaches is no feature.

The call graph is read from syntax alone. A definition is reached if a reached one uses its name where that name is
imported or defined; a method, if its class is reached and an attribute of its name is read; a subclass with its base,
because scenarios name components; and a rule such as `@f.defjvp` with its function.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("physics", "performance", "learning", "economics", "search")
COMMANDS = ("energymodel.cli.", "energymodel.sources.")
"""What a person calls: the command line, and what the two documents say. The names of `em` are added to them."""

FITTED = (
    "experiments/17_kernels/collectives.py",  # presets/nodes: scale_up and collectives
    "experiments/24_source_documents/statements.py",  # docs/documents.md
    "experiments/24_source_documents/symbols.py",  # docs/documents.md
)
"""Experiments whose findings are constants of presets or a page of the documentation: their laws count as reached."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    path: str
    is_code: bool  # neither a constant nor an import
    owner: str  # path of the class of a method
    follows: set[str]  # bases of a class; the function whose rule of derivatives this is
    names: set[str]
    attributes: set[str]


def definitions(module: str, text: str) -> Iterator[Definition]:
    """Functions, classes, methods, constants and imports of a module; each runs what stands between them, too."""
    tree = ast.parse(text)
    local = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            source = ".".join([*[module] * node.level, *([node.module] if node.module else [])])
            local |= {entry.asname or entry.name: f"{source}.{entry.name}" for entry in node.names}
        elif isinstance(node, ast.Import):
            local |= {entry.asname or entry.name: entry.name for entry in node.names}
    local = {name: path for name, path in local.items() if path.startswith("energymodel")}
    yield from (Definition(f"{module}.{name}", False, "", set(), {path}, set()) for name, path in local.items())
    labeled = [(label, node) for node in tree.body for label in labels(node)]
    local |= {label: f"{module}.{label}" for label, _ in labeled}
    between = [node for node in tree.body if not list(labels(node))]
    for label, node in labeled:
        path, decorators = f"{module}.{label}", getattr(node, "decorator_list", [])
        if isinstance(node, ast.ClassDef):
            methods = [entry for entry in node.body if isinstance(entry, Function)]
            rest = [entry for entry in node.body if entry not in methods]
            parts = [*between, *rest, *node.bases, *node.keywords, *decorators]
            yield Definition(path, True, "", used(node.bases, local)[0], *used(parts, local))
            for entry in methods:
                yield Definition(f"{path}.{entry.name}", True, path, set(), *used([entry], local))
        else:
            rules = [entry for entry in decorators if isinstance(entry, ast.Attribute)]
            yield Definition(
                path, isinstance(node, Function), "", used(rules, local)[0], *used([*between, node], local)
            )


def labels(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        yield from (entry.id for entry in ast.walk(target) if isinstance(entry, ast.Name))


def used(parts: Iterable[ast.AST], local: dict[str, str]) -> tuple[set[str], set[str]]:
    """Paths that a piece of syntax names, also through packages, and attributes that it reads."""
    nodes = [entry for part in parts for entry in ast.walk(part)]
    chains = [ast.unparse(entry).partition(".") for entry in nodes if isinstance(entry, ast.Name | ast.Attribute)]
    names = {f"{local[first]}{dot}{rest}" for first, dot, rest in chains if first in local}
    return names, {entry.attr for entry in nodes if isinstance(entry, ast.Attribute)}


def reached(every: Iterable[Definition], roots: tuple[str, ...], named: Iterable[str] = ()) -> set[str]:
    """Paths of definitions that are reached from those whose paths start with a root, and from some by name."""
    result, names, attributes, left = set(), set(named), set(), list(every)

    def is_new(entry: Definition) -> bool:
        if entry.owner:
            name = entry.path.removeprefix(entry.owner + ".")
            return entry.owner in result and (name.startswith("_") or name in attributes)
        return entry.path in names or bool(entry.follows & names) or entry.path.startswith(roots)

    while new := [entry for entry in left if is_new(entry)]:
        left = [entry for entry in left if not is_new(entry)]
        for entry in new:
            result.add(entry.path)
            names |= {entry.path, *entry.names}
            attributes |= entry.attributes
    return result


def test_a_command_reaches_every_public_function():
    every = []
    for folder in (ROOT, ROOT / "kernels"):
        for path in folder.glob("energymodel*/**/*.py"):
            module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            stub = path.with_suffix(".pyi")
            every += definitions(module, (stub if stub.exists() else path).read_text(encoding="utf-8"))
    for path in FITTED:
        every += definitions(f"fitted.{Path(path).stem}", (ROOT / path).read_text(encoding="utf-8"))
    named = [entry.path for entry in every if re.fullmatch(r"energymodel\.[a-z_]+", entry.path)]
    result = reached(every, (*COMMANDS, "fitted."), named)
    missing = [
        entry.path
        for entry in every
        if entry.is_code and entry.path.split(".")[1] in PACKAGES
        if not entry.path.rpartition(".")[2].startswith("_")
        if entry.path not in result and (not entry.owner or entry.owner in result)
    ]
    assert not missing, "no command reaches these; call them from one or delete them:\n" + "\n".join(missing)


def test_the_graph_follows_calls_attributes_subclasses_and_rules_of_derivatives():
    text = """
from energymodel.a import far as near
def command(one: Law): return one.used() + helper(CONSTANT) + near()
def helper(x): return x
CONSTANT = through()
def through(): return 1
def alone(): return nobody()
def nobody(): return 2
class Law:
    def used(self): return inside()
    def unused(self): return never()
class Named(Law):
    def used(self): return named()
def inside(): return 3
def never(): return 4
def named(): return 5
@helper.defjvp
def rule(x): return slope(x)
def slope(x): return x
def far(): return 6
"""
    result = {
        path.removeprefix("energymodel.a.")
        for path in reached(definitions("energymodel.a", text), ("energymodel.a.command",))
    }
    assert {"helper", "CONSTANT", "through", "Law", "Law.used", "inside", "Named", "named", "rule", "slope"} <= result
    assert "far" in result
    assert not {"alone", "nobody", "Law.unused", "never"} & result
