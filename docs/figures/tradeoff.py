"""Draw the figure of the landing page: why is the batch size an energy question?

`python docs/figures/tradeoff.py` writes `tradeoff-light.svg` and `tradeoff-dark.svg` beside it, in about a minute.
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import energymodel as em
from energymodel.sweeps.batch_curve import BatchCurve

SCENARIO = "deepseek-v3-h800"
LOWEST, HIGHEST = 3.5e6, 2.4e8  # batches that are shown [token]
GWH = 3.6e12
SHOWN = {
    "light": {"text": "#1f2328", "line": "#1f2328", "needed": "#c6ccd4", "waiting": "#0072b2", "extra": "#e69f00"},
    "dark": {"text": "#e6edf3", "line": "#e6edf3", "needed": "#444c56", "waiting": "#3d9ddb", "extra": "#e69f00"},
}
"""Colors by theme; blue and orange of Okabe and Ito, which color-blind readers tell apart."""


def draw(curve: BatchCurve, title: str, theme: str) -> None:
    """Stack what the energy of a run to the same loss is for, against the batch."""
    colors = SHOWN[theme]
    batch, tokens = curve.batch, np.asarray(curve.outcome.tokens)
    energy = np.asarray(curve.outcome.energy.total)
    # Tokens grow on both sides of the best batch, and the energy of a token falls to that of chips that never wait.
    least_tokens = tokens.min()
    per_token = energy[-1] / tokens[-1]
    needed = np.full_like(energy, least_tokens * per_token)
    extra = (tokens - least_tokens) * per_token
    waiting = energy - needed - extra
    shown = (batch >= LOWEST) & (batch <= HIGHEST)
    best, own = curve.best["energy"], float(np.asarray(curve.own.energy.total))
    own_batch = float(np.asarray(curve.own.tokens / curve.own.steps))
    best_energy = own * (1.0 - best.saving)

    rc = {"svg.hashsalt": "energymodel", "font.size": 11, "font.family": "DejaVu Sans"}
    rc |= {"text.color": colors["text"], "axes.labelcolor": colors["text"], "axes.edgecolor": colors["text"]}
    rc |= {"xtick.color": colors["text"], "ytick.color": colors["text"]}
    with mpl.rc_context(rc):
        figure, axes = plt.subplots(figsize=(9.0, 5.0), layout="constrained")
        parts = [part[shown] / GWH for part in (needed, waiting, extra)]
        fills = [colors[name] for name in ("needed", "waiting", "extra")]
        axes.stackplot(batch[shown], *parts, colors=fills, linewidth=0)
        axes.plot(batch[shown], energy[shown] / GWH, color=colors["line"], linewidth=2.0)
        axes.set_xscale("log")
        axes.set_xlim(LOWEST, HIGHEST)
        axes.set_ylim(0.0, 1.1 * float(np.max(energy[shown])) / GWH)
        axes.set_xlabel("batch size [million tokens]")
        axes.set_ylabel("energy of the run, to the same loss [GWh]")
        ticks = [5e6, 1e7, 2e7, 5e7, 1e8, 2e8]
        axes.set_xticks(ticks, [f"{tick / 1e6:g}" for tick in ticks])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)

        arrow = {"arrowstyle": "-", "color": colors["text"], "linewidth": 1.0}
        axes.plot(best.batch, best_energy / GWH, "o", color=colors["line"], markersize=9)
        axes.annotate(
            f"lowest energy: {best.batch / 1e6:.0f} million tokens\n"
            f"(90 %: {best.low / 1e6:.0f} to {best.high / 1e6:.0f} million)",
            (best.batch, best_energy / GWH),
            (best.batch, 0.66 * best_energy / GWH),
            ha="center",
            arrowprops=arrow,
        )
        axes.plot(own_batch, own / GWH, "D", color=colors["line"], markersize=8, fillstyle="none", markeredgewidth=2)
        axes.annotate(
            f"the run's own batch:\n{own_batch / 1e6:.0f} million, {100.0 * (own / best_energy - 1.0):+.0f} % energy",
            (own_batch, own / GWH),
            (0.8 * own_batch, 1.31 * best_energy / GWH),
            ha="center",
            arrowprops=arrow,
        )
        axes.text(LOWEST * 1.12, 0.2 * needed[0] / GWH, "compute that the loss needs at any batch", fontsize=12)
        axes.annotate(
            "small batch:\nchips wait for each other",
            (5.2e6, (needed[0] + 0.5 * np.interp(5.2e6, batch, waiting)) / GWH),
            (6.6e6, 1.55 * best_energy / GWH),
            arrowprops=arrow,
        )
        axes.annotate(
            "large batch:\na token teaches less,\nso more are needed",
            (1.5e8, (needed[0] + 0.6 * np.interp(1.5e8, batch, extra)) / GWH),
            (7.2e7, 1.65 * best_energy / GWH),
            ha="right",
            arrowprops=arrow,
        )
        axes.set_title(f"The batch size is an energy question: {title}", loc="left", fontsize=12, fontweight="bold")
        path = Path(__file__).with_name(f"tradeoff-{theme}.svg")
        figure.savefig(path, transparent=True, metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    """Compute the curve once, and draw it for both themes."""
    scenario = em.load_scenario(SCENARIO)
    curve = em.batch_curve(scenario, 300)
    for theme in SHOWN:
        draw(curve, scenario.title, theme)


if __name__ == "__main__":
    main()
