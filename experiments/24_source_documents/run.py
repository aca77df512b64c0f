"""Write `docs/documents.md`: each formula of the two source documents with the numbers of the 405B run."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from statements import Statement, statements
from symbols import LARGER, SLOWER, document_symbols

from energymodel.readers.expressions import evaluate
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
COLUMNS = ("as written", "at", "written", "corrected", "model", "written / model", "why")
CLAUSES = tomllib.loads(Path(__file__).with_name("clauses.toml").read_text(encoding="utf-8"))
LAWS = f"""## As laws of a scenario

What the documents state may be tried as a law of the model, such as

```sh
energymodel evaluate {SCENARIO} --set system.learning.critical_batch=stated-batch-efficiency
energymodel evaluate {SCENARIO} --set "system.software.saturation.saturation_batch=64 Mi token"
energymodel evaluate {SCENARIO} --set "system.software.saturation.efficiency_batch=16 Mi token" \\
    --set "system.software.saturation.memory_batch=16 Mi token"
```

Each number is that at {LARGER:g} times the batch of the run over that at its batch: by the formula, by the run with it
as its law, and by the run as it is. E(B) and T(B) leave no best batch between them, so that B* is no law; its corrected
form is in the five sentences of `optimize`.

| as written | of | written | run with it | run without | why |
|---|---|---:|---:|---:|---|
"""


def rows(scenario: str = SCENARIO) -> list[Statement]:
    """All formulas with the numbers of a scenario."""
    run = load_scenario(scenario, {"system.learning.critical_batch.small_batch_share": 0.0})
    with jax.enable_x64(True):
        outcome = evaluate_once(run.system, run.plan)
        return statements(run, outcome, document_symbols(run.system, run.plan, outcome))


def laws(scenario: str = SCENARIO) -> list[tuple[dict[str, Any], list[float]]]:
    """Laws of the batch, each with its ratio of the larger batch over the own one: written, with the law, without."""
    own = load_scenario(scenario)
    with jax.enable_x64(True):
        loss = float(evaluate_once(own.system, own.plan).loss)

    def ratio(law: dict[str, Any], changes: Sequence[str]) -> float:
        numbers, goal = [], [f"plan.goal.loss={loss!r} nat/token"] if "loss" in law["of"] else []
        for size in (LARGER, 1.0):
            run = load_scenario(scenario, [*changes, *goal, f"plan.batch={size * float(own.plan.batch[0])!r} token"])
            with jax.enable_x64(True):
                numbers.append(float(evaluate(law["number"], {"run": evaluate_once(run.system, run.plan)})))
        return numbers[0] / numbers[1]

    tried = CLAUSES["laws"]
    return [(law, [evaluate(law["written"], {}), ratio(law, law["changes"]), ratio(law, ())]) for law in tried]


def page(formulas: Sequence[Statement], tried: Sequence[tuple[dict[str, Any], list[float]]]) -> str:
    """The page in Markdown."""
    parts = [HEAD]
    for document in dict.fromkeys(row.document for row in formulas):
        lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|" + "---:|" * (len(COLUMNS) - 3) + "---|"]
        for row in (row for row in formulas if row.document == document):
            values = (_text(value, row.unit) for value in (row.printed, row.corrected, row.model))
            ratio = f"{_text(row.printed / row.model, '1', 3)} | {CLAUSES['why'][row.formula]}"
            lines.append(f"| {' | '.join((row.formula.replace('|', chr(92) + '|'), row.at, *values, ratio))} |")
        parts.append(f"## {document}\n\n" + "\n".join(lines) + "\n")
    return "\n".join([*parts, LAWS + law_rows(tried)])


def law_rows(tried: Sequence[tuple[dict[str, Any], list[float]]]) -> str:
    """Rows of the laws in Markdown."""
    cells = ((law["formula"], law["of"], *(f"{ratio:.4g}" for ratio in ratios), law["why"]) for law, ratios in tried)
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _text(value: float | None, unit: str, digits: int = 4) -> str:
    if value is None:
        return ""
    return format_quantity(value, unit) if unit != "1" else f"{value:.{digits}g}".replace("e+", "e")


if __name__ == "__main__":
    PAGE.write_text(page(rows(), laws()), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
