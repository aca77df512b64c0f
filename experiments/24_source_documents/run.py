"""Write `docs/documents.md`: each formula of the two source documents with the numbers of the 405B run."""

from collections.abc import Sequence
from pathlib import Path

import jax
from statements import Statement, statements
from symbols import LARGER, SLOWER, document_symbols

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once
from energymodel.units import format_quantity

ROOT = Path(__file__).parents[2]
SCENARIO = "llama-3.1-405b-h100"
PAGE = ROOT / "docs" / "documents.md"
HEAD = f"""# The formulas of the source documents

Each formula of the two documents with the numbers of `{SCENARIO}`: as written, corrected where it is wrong, and
what the whole model gives. Laws of batch and power go through the run's own point, with the slope that they have there,
and are compared at {LARGER:g} times the batch or {100 * SLOWER:g} % of the clock; small batches are free, as in the
documents. [Sources](sources.md) says what is
wrong with a formula and why. `python experiments/24_source_documents/run.py` writes this page.
"""
COLUMNS = ("as written", "at", "written", "corrected", "model", "written / model")


def rows(scenario: str = SCENARIO) -> list[Statement]:
    """All formulas with the numbers of a scenario."""
    run = load_scenario(scenario, {"system.learning.critical_batch.small_batch_share": 0.0})
    with jax.enable_x64(True):
        outcome = evaluate_once(run.system, run.plan)
        return statements(run, outcome, document_symbols(run.system, run.plan, outcome))


def page(formulas: Sequence[Statement]) -> str:
    """The page in Markdown."""
    parts = [HEAD]
    for document in dict.fromkeys(row.document for row in formulas):
        lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
        for row in (row for row in formulas if row.document == document):
            values = (_text(value, row.unit) for value in (row.printed, row.corrected, row.model))
            ratio = _text(row.printed / row.model, "1", 3)
            lines.append(f"| {' | '.join((row.formula.replace('|', chr(92) + '|'), row.at, *values, ratio))} |")
        parts.append(f"## {document}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _text(value: float | None, unit: str, digits: int = 4) -> str:
    if value is None:
        return ""
    return format_quantity(value, unit) if unit != "1" else f"{value:.{digits}g}".replace("e+", "e")


if __name__ == "__main__":
    PAGE.write_text(page(rows()), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
