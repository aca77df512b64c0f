"""Systems and plans that are refused by the name of what is wrong, and the nearest ones that are not."""

import re
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario

SMALL, LLAMA, B200 = "test-1b-h100", "llama-3.1-405b-h100", "llama-3.1-70b-b200"
MEGATRON = "system.software=megatron & plan.layout.zero=1"
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED, ids=[f"{row[0]} {row[1]}" for row in REFUSED])
def test_what_cannot_be_is_refused(name, changes, message):
    with pytest.raises(InputError, match=f"(?is){message}"):
        load_scenario(name, changes.split(" & "))


@pytest.mark.parametrize(
    ("name", "changes", "path", "value"),
    [
        (LLAMA, "system.software.whole_groups=0 & plan.batch=20 Mi tokens", "batch", 20.0 * 2**20),
        (
            LLAMA,
            "system.software=megatron & plan.layout.zero=1 & plan.layout.embedding_balanced=1",
            "layout.embedding_balanced",
            1.0,
        ),
        (B200, "plan.layout.fp4=1", "layout.fp4", 1.0),
    ],
)
def test_the_nearest_that_can_be_is_taken(name, changes, path, value):
    assert attrgetter(path)(load_scenario(name, changes.split(" & ")).plan).item() == value


@pytest.mark.parametrize(
    ("name", "question", "message"),
    [
        (SMALL, ["plan.chips@0..1"], r"vary plan\.chips@0\.\.1: only plan\.batch follows"),
        (SMALL, ["plan.clock@0..1"], r"vary plan\.clock@0\.\.1: only plan\.batch follows"),
        (SMALL, {"plan.waiting_clock": (0.0, 0.1)}, "is impossible"),
        (SMALL, {"plan.waiting_clock": (1.5, 1.6)}, "is impossible"),
        (LLAMA, {"plan.layout.fp4": (0.0, 1.0)}, "has no fp4; it has: bf16, fp8, tf32, fp32"),
        (LLAMA, {"system.network.topology.pod": (1024, 4096)}, "4096 nodes are more than 3072"),
    ],
)
def test_ranges_that_cannot_be_searched_are_refused(name, question, message):
    with pytest.raises(InputError, match=re.compile(message)):
        load_scenario(name).with_question(vary=question)
