"""Every formula of layers 1 and 2 states its equation, units and source, and has a worked number."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator

import pytest

import worked_numbers

PACKAGES = ["physics", "performance", "learning", "economics", "system"]
ELECTRIC_AND_THERMAL = {"W", "J", "s", "K", "Hz", "F", "V", "A", "C", "ohm", "m", "kg", "mol", "year"}
UNITS = ELECTRIC_AND_THERMAL | {"1", "B", "bit", "FLOP", "token", "nat", "sample", "element", "USD"}
UNIT = re.compile(r"\[([^\[\]]+)\]")
SOURCE = re.compile(r"\[(definition|derivation[:,\s][^\]]+|[^\]]*\b(1[6-9]|20)\d\d\b[^\]]*)\]")
NO_FORMULAS = {
    "energymodel.performance.pipeline_simulator",  # lists operations and runs them
    "energymodel.system.fleet",  # joins whole runs
    "energymodel.system.layouts",  # lists layouts and compares them
    "energymodel.system.plan_rules",  # refuses plans of a person
    "energymodel.system.run_outcome",  # joins a whole run
    "energymodel.system.timeline",  # runs a simulated step
    "energymodel.system.trajectory",  # follows a whole run
    "energymodel.system.outputs",  # reads names and limits that a person writes
}
DOCUMENTS = ("Training Dynamics", "Engineering Optimization")


def public_functions(package: str) -> Iterator[tuple[str, Callable]]:
    """Walk the functions that a package defines (not those that it imports)."""
    root = importlib.import_module(package)
    names = [root.__name__]
    if hasattr(root, "__path__"):
        names += [module.name for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")]
    for name in (entry for entry in names if entry not in NO_FORMULAS):
        module = importlib.import_module(name)
        for label, value in vars(module).items():
            function = inspect.isfunction(value) or (hasattr(value, "__wrapped__") and not inspect.isclass(value))
            is_check = inspect.isfunction(value) and inspect.signature(value).return_annotation is None
            if function and value.__module__ == name and not label.startswith("_") and not is_check:
                yield f"{name}.{label}", value


def has_unit(text: str) -> bool:
    """Whether some bracket holds nothing but units: `[W]`, `[FLOP/s]`, `[K/W]`, `[m^2]`."""
    for content in UNIT.findall(text):
        words = re.findall(r"[A-Za-z°µ]+|\b1\b", content)
        if words and set(words) <= UNITS:
            return True
    return False


def has_result_unit(text: str) -> bool:
    """Whether the unit of the result stands before the equation, or in a section of its own."""
    return has_unit(text if "**Returns:**" in text else text.partition("`")[0])


FORMULA = {
    "text or equation": lambda text: len(text.split("**Returns:**")[0].split()) >= 3,
    "unit in brackets": has_unit,
    "unit of the result": has_result_unit,
    "source with year, [definition] or [derivation: ...]": SOURCE.search,
}
STATED = {
    "document and section": lambda text: any(document in text for document in DOCUMENTS),
    "unit of the result": has_result_unit,
    "verdict (OK, Generalized or Wrong)": re.compile(r"\b(OK|Wrong|Generalized)\b").search,
}


def complaints(function: Callable, checks: dict[str, Callable] = FORMULA) -> list[str]:
    """List what the docstring of a formula lacks."""
    text = " ".join((inspect.getdoc(function) or "").split())
    return [what for what, check in checks.items() if not check(text)]


@pytest.fixture(scope="module")
def worked() -> set[int]:
    """Identities of all functions that have a worked number."""
    return {id(worked_numbers.resolve(case["function"])) for _, case in worked_numbers.cases()}


@pytest.mark.parametrize("package", [*PACKAGES, "sources"])
def test_every_formula_is_documented_and_has_a_worked_number(package, worked):
    missing = []
    for name, function in public_functions(f"energymodel.{package}"):
        lacks = complaints(function, STATED if package == "sources" else FORMULA)
        if id(function) not in worked:
            lacks.append("worked number in tests/worked_numbers.toml")
        if lacks:
            missing.append(f"{name}: {', '.join(lacks)}")
    assert not missing, "formulas lack\n" + "\n".join(missing)


def test_the_checks_notice_what_is_missing():
    def documented():
        """Dynamic power, `P = C V^2 f` [Horowitz 2014].

        **Returns:** power [W].
        """

    def in_one_sentence():
        """Dynamic power [W], `P = C V^2 f` [Horowitz 2014]."""

    def without_unit():
        """Dynamic power, `P = C V^2 f`, f in [Hz] [Horowitz 2014]."""

    def undocumented(): ...

    assert complaints(documented) == complaints(in_one_sentence) == []
    assert complaints(without_unit) == ["unit of the result"]
    assert len(complaints(undocumented)) == 4
    assert has_unit("rate [FLOP/s], area [m^2]")
    assert not has_unit("as printed [Young 1974]")
