"""Joint draws of the constants of the critical batch: the joint fit as presets.

`python experiments/06_critical_batch/critical_batch_draws.py` prints the constants of
`laws/zhang-2024-li-2025-runs` and writes the draws of `joint/critical-batch`, with where they come from.
"""

import argparse
from pathlib import Path

import joint_fit
import numpy as np

from energymodel.calibration.batch_curves import PIVOT
from energymodel.calibration.least_squares import FitResult

PRESET = Path(__file__).parents[2] / "energymodel" / "presets" / "joint" / "critical-batch.toml"
DRAWS = 1000
SEED = 1
COLUMNS = ("log at_pivot", "exponent", "log sharpness")
BETWEEN_STUDIES = 0.2
"""Standard deviation of ln B_c at the pivot from one data set, optimizer and criterion to another: with a sharpness of
one, the fit to Zhang et al. alone, the law that they state and that of Bergsma et al. 2025 give 2.5, 3.2 and 2.9
million tokens at 5 billion."""

SHARPNESS_BETWEEN_STUDIES = 0.15
"""The same of ln p: pre-training benchmarks of MLPerf fit 1.5 to 1.6, the runs of Zhang et al. 1.25 alone, and 1.19
with those of Li et al. 2025."""


def draws(result: FitResult, count: int = DRAWS) -> np.ndarray:
    """Deviations of `COLUMNS` from the fit: Laplace's covariance in the fit's coordinates, and the studies' spread."""
    random = np.random.default_rng(SEED)
    z = random.multivariate_normal(np.zeros(3), result.covariance[:3, :3], count)
    exponent = result.values["exponent"]
    logit = np.log(exponent / (1.0 - exponent))
    deviations = [z[:, 0], 1.0 / (1.0 + np.exp(-logit - z[:, 1])) - exponent, z[:, 2]]
    deviations[0] = deviations[0] + BETWEEN_STUDIES * random.standard_normal(count)
    deviations[2] = deviations[2] + SHARPNESS_BETWEEN_STUDIES * random.standard_normal(count)
    return np.stack(deviations, axis=1)


def tested_tokens(result: FitResult) -> float:
    """Effective tokens of the largest run [token]."""
    runs, law = result.problem.table.runs, joint_fit.law_of(result.values)
    return float(np.max(joint_fit.effective_tokens(law, runs.tokens, runs.batch)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, default=joint_fit.step_law.DENSE)
    runs = joint_fit.step_law.read(parser.parse_args().runs, joint_fit.step_law.FEWEST_STEPS)
    fit_result = joint_fit.fitted(runs)
    print(f"pivot {PIVOT:g} token, tested up to {tested_tokens(fit_result):.4g} effective tokens")
    for row in joint_fit.constants(fit_result):
        print(f"{row['constant']:<32} {row['value']:12.6g}")
    table = draws(fit_result)
    print(f"pivot {PIVOT:g} token, tested up to {tested_tokens(fit_result):.4g} effective tokens")
    print("standard deviations", dict(zip(COLUMNS, np.round(table.std(axis=0), 4).tolist(), strict=True)))
    print("correlations", np.round(np.corrcoef(table.T)[np.triu_indices(3, 1)], 2))
    rows = [",".join(COLUMNS), *(",".join(f"{number:.5g}" for number in row) for row in table)]
    PRESET.write_text(
        'title = "Constants of the critical batch, fitted to runs of two studies"\n'
        f'source = "experiments/06_critical_batch: {len(table)} draws from the covariance of the fit to '
        "zhang2024_batch_vs_steps.csv (MIT) and the runs of Li et al. 2025, batch at the pivot and sharpness "
        "widened by the spread between studies, "
        f'{BETWEEN_STUDIES:g} and {SHARPNESS_BETWEEN_STUDIES:g} in the logarithm"\n',
        encoding="utf-8",
    )
    PRESET.with_suffix(".csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
