"""A command reaches every public function and class of the model: what no command reaches is no feature."""

import ast
from pathlib import Path

import pytest

from reached import ROOT, Function, Graph, Module, read_modules

PACKAGES = ("physics", "performance", "learning", "economics", "search")
COMMANDS = ("energymodel.cli", "energymodel.sources")
"""What a person calls: the command line, and what the two documents say. The functions of `em` are added to them."""

FITTED = {
    "experiments/17_kernels/collectives.py": "presets/nodes: scale_up and collectives",
    "experiments/24_source_documents/statements.py": "docs/documents.md",
    "experiments/24_source_documents/symbols.py": "docs/documents.md",
}
"""Experiments whose findings are constants of presets or a page of the documentation: their laws count as reached."""

LATER: dict[str, str] = {}
"""What no command reaches yet, by `package.module.name`, and the question that is to reach it."""


def unreached() -> list[str]:
    """Public functions, classes and methods of the model that nothing reaches from a command or from `em`."""
    modules = read_modules()
    roots = [name for name in modules if name.startswith(COMMANDS)]
    roots += [full for meanings in modules["energymodel"].imports.values() for full in meanings if full not in modules]
    for path in FITTED:
        name = f"energymodel.{Path(path).stem}"
        modules[name] = Module(name, ast.parse((ROOT / path).read_text(encoding="utf-8")), is_package=False)
        roots.append(name)
    reached = Graph(modules, roots).reached
    return [
        name.removeprefix("energymodel.")
        for module in modules.values()
        if module.name.split(".")[1:2] and module.name.split(".")[1] in PACKAGES
        for name in public_names(module)
        if name not in reached and name.rpartition(".")[0] not in unreached_owners(module, reached)
    ]


def public_names(module: Module) -> list[str]:
    """Functions, classes and their methods, without a leading underscore."""
    result = []
    for label, node in module.definitions.items():
        if isinstance(node, Function | ast.ClassDef) and not label.startswith("_"):
            result.append(f"{module.name}.{label}")
            below = node.body if isinstance(node, ast.ClassDef) else []
            methods = [entry.name for entry in below if isinstance(entry, Function) and not entry.name.startswith("_")]
            result += [f"{module.name}.{label}.{name}" for name in methods]
    return result


def unreached_owners(module: Module, reached: set[str]) -> set[str]:
    """Classes whose methods need no line of their own."""
    return {f"{module.name}.{label}" for label in module.definitions} - reached


@pytest.fixture(scope="module")
def result() -> list[str]:
    return unreached()


def test_a_command_reaches_every_public_function(result):
    missing = [name for name in result if name not in LATER]
    assert not missing, (
        "no command reaches these; call them from one, delete them, or move what the documents say to "
        "energymodel/sources/:\n" + "\n".join(missing)
    )


def test_what_comes_later_is_unreached_and_an_unreached_formula_named(result, monkeypatch):
    assert sorted(set(LATER) - set(result)) == [], "reached or gone: delete these from LATER"
    name, _ = next(iter(LATER.items()), ("physics.limits.landauer_energy", ""))
    monkeypatch.delitem(LATER, name, raising=False)
    with pytest.raises(AssertionError, match=name):
        test_a_command_reaches_every_public_function([name])


def graph_of(text: str, *roots: str) -> set[str]:
    module = Module("energymodel.a", ast.parse(text), is_package=False)
    return Graph({"energymodel.a": module}, [f"energymodel.a.{entry}" for entry in roots]).reached


def test_the_graph_follows_calls_attributes_subclasses_and_rules_of_derivatives():
    text = """
def command(one: Law): return one.used() + helper(CONSTANT)
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
"""
    names = {name.removeprefix("energymodel.a.") for name in graph_of(text, "command")}
    assert {"helper", "CONSTANT", "through", "Law", "Law.used", "inside", "Named", "named", "rule", "slope"} <= names
    assert not {"alone", "nobody", "Law.unused", "never"} & names


def test_a_package_may_pass_on_a_function_with_the_name_of_its_module():
    texts = {
        "energymodel.p": "from energymodel.p.solve import solve",
        "energymodel.p.solve": "def solve(): return inside()\ndef inside(): return 1",
        "energymodel.a": "from energymodel.p import solve\ndef command(): return solve()",
    }
    modules = {name: Module(name, ast.parse(text), name == "energymodel.p") for name, text in texts.items()}
    assert "energymodel.p.solve.inside" in Graph(modules, ["energymodel.a.command"]).reached
