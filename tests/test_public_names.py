"""The names that the package offers exist, those of the solvers without their modules."""

import subprocess
import sys

import pytest

import energymodel as em


@pytest.mark.parametrize("package", [em, em.solver], ids=["energymodel", "solver"])
def test_every_public_name_loads(package):
    assert [name for name in package.__all__ if getattr(package, name, None) is None] == []
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=r"attribute '?minimise'?$"):
        _ = package.minimise


def test_minimize_by_its_public_name():
    found = em.solver.minimize(lambda x: (x - 2.0) ** 2, 0.0, bounds=(0.0, 1.0))
    assert float(found.x) == pytest.approx(1.0, abs=1e-8)
    assert float(found.multipliers.upper) == pytest.approx(2.0, abs=1e-6)
    assert float(found.residual) <= 1e-8


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import energymodel", {"jax", "rich", "matplotlib", "energymodel.report"}),
        ("import energymodel.learning.schedule, energymodel.economics.cost", {"diffrax", "optimistix"}),
        (
            "from energymodel.units import convert, parse_quantity; convert(700.0, 'W', 'W', 'x'); "
            "[parse_quantity(text, unit, 'x') for text, unit in (('15 K/W', 'K/W'), ('25 °C', 'K'), ('0.5', '1'))]",
            {"pint"},
        ),
    ],
)
def test_libraries_load_only_when_used(code, heavy):
    code = f"{code}; import sys; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
