"""Systems with numbers from anywhere in their ranges have a finite outcome or are refused."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "random_systems.py"


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "lowest"), [("32", 85.0), ("64", 95.0)])  # 3.4e38 J is the largest in float32
def test_most_of_what_is_accepted_has_an_outcome(precision, lowest):
    command = [sys.executable, str(SCRIPT), "--number", "750", "--seed", "7", "--precision", precision]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    accepted = re.search(r"([0-9.]+) %  accepted", printed)
    assert accepted is not None, printed
    assert float(accepted[1]) > lowest
    assert "0 accepted outcomes are not finite" in printed
