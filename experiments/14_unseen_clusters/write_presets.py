"""How are the population and the clusters of it kept as presets of energymodel?"""

import numpy as np

from energymodel.presets.step_population import FOLDER, LEVELS, NAMES, StepPopulation

SOURCE = "experiments/14_unseen_clusters"


def write_population(found: StepPopulation) -> None:
    """Means, and the lower triangle of a root of the covariance, a line for each effect but those of clusters."""
    keys = [place for place, (level, *_) in enumerate(found.effects.keys) if level != "cluster"]
    root = np.linalg.cholesky(found.covariance[np.ix_(keys, keys)])
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "step-time.csv").open("w", encoding="utf-8", newline="") as file:
        for at, place in enumerate(keys):
            file.write(",".join(f"{value:.4g}" for value in [found.mean[place], *root[at, : at + 1]]) + "\n")
    lines = ['title = "Constants of a training step on all measured clusters"', f'source = "{SOURCE}"', ""]
    for level in LEVELS[1:-1]:
        labels = sorted({label for own, label, _ in found.effects.keys if own == level})
        lines.append(f"{level} = [{', '.join(chr(34) + label + chr(34) for label in labels)}]")
    for level, spread in found.spreads.items():
        lines += ["", f"[spread.{level}]"] + [f'"{name}" = {one:.3g}' for name, one in zip(NAMES, spread, strict=True)]
    lines += ["", "[scatter]", f"group = {found.group_scatter:.4g}", f"row = {found.row_scatter:.4g}", ""]
    (FOLDER / "step-time.toml").write_text("\n".join(lines), encoding="utf-8")
