"""Functions and classes that a command reaches: a static call graph of the package, from its syntax alone.

A definition is reached if a root names it, or a reached definition does. A method of a reached class is reached if
reached code reads an attribute of its name; so is every subclass of a reached class, because scenarios name components.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {"energymodel": ROOT / "energymodel", "energymodel_kernels": ROOT / "kernels" / "energymodel_kernels"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """Definitions of a module by name, what its other names mean, and what runs when it is imported."""

    def __init__(self, name: str, tree: ast.Module, is_package: bool) -> None:
        self.name = name
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, list[str]] = {}
        self.body: list[ast.stmt] = []
        for node in tree.body:
            names = list(_defined(node))
            self.definitions |= dict.fromkeys(names, node)
            self.body += [] if names else [node]
        parent = name if is_package else name.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for entry in node.names:
                    first = entry.name.split(".")[0]
                    self._means(entry.asname or first, entry.name if entry.asname else first)
            elif isinstance(node, ast.ImportFrom):
                above = parent.split(".")[: len(parent.split(".")) + 1 - node.level] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                for entry in node.names:
                    self._means(entry.asname or entry.name, f"{source}.{entry.name}")

    def _means(self, local: str, full: str) -> None:
        """Imports within functions may give one name several meanings; all of them count."""
        if full.split(".")[0] in SOURCES:
            self.imports.setdefault(local, []).append(full)


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        yield from (entry.id for entry in ast.walk(target) if isinstance(entry, ast.Name))


def read_modules() -> dict[str, Module]:
    """All modules of the package and of its kernels; of a package with a stub, what the stub says."""
    result = {}
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            stub = path.with_suffix(".pyi")
            text = (stub if stub.exists() else path).read_text(encoding="utf-8")
            result[name] = Module(name, ast.parse(text), is_package)
    return result


class Graph:
    """What is reached from roots; definitions are called `module.name`, methods `module.Class.name`."""

    def __init__(self, modules: dict[str, Module], roots: Iterable[str]) -> None:
        """Roots are definitions or whole modules."""
        self.modules = modules
        self.reached: set[str] = set()
        self._attributes: set[str] = set()
        self._waiting: dict[str, list[tuple[Module, str, Function]]] = {}
        self._followers = self._with_what_they_bring()
        total = {name: [f"{name}.{entry}" for entry in modules[name].definitions] for name in roots if name in modules}
        self._reach([entry for root in roots for entry in total.get(root, [root])])

    def _reach(self, names: list[str]) -> None:
        while names:
            name = self._resolve(names.pop())
            if name is None or name in self.reached:
                continue
            self.reached.add(name)
            module, _, label = name.rpartition(".")
            home = self.modules[module]
            node = home.definitions[label]
            names += self._used(home, home.body)
            names += self._class(home, node) if isinstance(node, ast.ClassDef) else self._used(home, [node])
            names += self._followers.get(name, ())

    def _class(self, home: Module, node: ast.ClassDef) -> Iterator[str]:
        """What a class names; methods wait until an attribute of their name is read."""
        yield from self._used(home, [*node.bases, *node.keywords, *node.decorator_list])
        for entry in node.body:
            if not isinstance(entry, Function):
                yield from self._used(home, [entry])
            elif entry.name.startswith("_") or entry.name in self._attributes:
                yield from self._method(home, node.name, entry)
            else:
                self._waiting.setdefault(entry.name, []).append((home, node.name, entry))

    def _method(self, home: Module, owner: str, node: Function) -> Iterator[str]:
        self.reached.add(f"{home.name}.{owner}.{node.name}")
        yield from self._used(home, [node])

    def _used(self, home: Module, nodes: Iterable[ast.AST]) -> Iterator[str]:
        """Full names that a piece of syntax names; notes the attributes that it reads."""
        for node in (entry for root in nodes for entry in ast.walk(root)):
            if isinstance(node, ast.Name):
                yield from self._meanings(home, node)
            elif isinstance(node, ast.Attribute):
                yield from self._meanings(home, node)
                if node.attr not in self._attributes:
                    self._attributes.add(node.attr)
                    for waiting in self._waiting.pop(node.attr, ()):
                        yield from self._method(*waiting)

    def _meanings(self, home: Module, node: ast.expr) -> list[str]:
        """What a name, or a chain of attributes of a name, may stand for."""
        if isinstance(node, ast.Attribute):
            return [f"{entry}.{node.attr}" for entry in self._meanings(home, node.value)]
        label = node.id if isinstance(node, ast.Name) else ""
        return [f"{home.name}.{label}"] if label in home.definitions else home.imports.get(label, [])

    def _resolve(self, name: str) -> str | None:
        """The definition behind a name, through packages that pass it on; None for what is no definition of ours."""
        module, _, label = name.rpartition(".")
        if not module:
            return None
        if module not in self.modules:
            return self._resolve(module) if name not in self.modules else None  # an attribute of a definition
        home = self.modules[module]
        if label in home.definitions:
            return name
        # A package may pass on a function that has the name of one of its modules.
        return next((self._resolve(entry) for entry in home.imports.get(label, ()) if entry != name), None)

    def _with_what_they_bring(self) -> dict[str, list[str]]:
        """Subclasses of each class, and of each function the rules that decorators such as `@f.defjvp` give it."""
        result: dict[str, list[str]] = {}
        for home in self.modules.values():
            for label, node in home.definitions.items():
                above = node.bases if isinstance(node, ast.ClassDef) else []
                above = [
                    entry for base in above for entry in ast.walk(base) if isinstance(entry, ast.Name | ast.Attribute)
                ]
                if isinstance(node, Function):
                    above = [entry for entry in node.decorator_list if isinstance(entry, ast.Attribute)]
                for name in (self._resolve(name) for entry in above for name in self._meanings(home, entry)):
                    result.setdefault(name or "", []).append(f"{home.name}.{label}")
        return result
