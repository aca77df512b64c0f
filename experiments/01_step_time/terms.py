"""The terms of a step of the 405B run.

`python experiments/01_step_time/terms.py` prints them and draws `terms.png` beside this file.
"""

import sys
from pathlib import Path

import jax

import energymodel as em
from energymodel.report.answers.plan_fields import part_fields
from energymodel.system.evaluate import evaluate_once

sys.path.insert(0, str(Path(__file__).parents[1]))
from figures import BLUE, GRAY, ORANGE, add_axes, new_figure, save

HERE = Path(__file__).parent
SCENARIO = "llama-3.1-405b-h100"


def main() -> None:
    scenario = em.load_scenario(SCENARIO)
    with jax.enable_x64(True):
        step = evaluate_once(scenario.system, scenario.plan).step_time
    terms = [(field.title, field.value) for field in part_fields(step)]
    total = sum(seconds for _, seconds in terms)
    for name, seconds in terms:
        print(f"{name:32s} {seconds:8.4f} s {seconds / total:7.1%}")
    print(f"{'step':32s} {total:8.4f} s")
    draw([term for term in terms if term[1] > 0.0], total)


def draw(terms: list[tuple[str, float]], total: float) -> None:
    """A bar for each term, each beginning where the one before ends."""
    figure = new_figure(6.8, 3.6)
    axes = add_axes(figure, 1, 1, 1)
    begin = 0.0
    for index, (_, seconds) in enumerate(terms):
        color = BLUE if index < 2 else ORANGE
        axes.barh(index, seconds, left=begin, color=color)
        axes.text(begin + seconds + 0.01 * total, index, f"{seconds:.3g} s", va="center", fontsize=8)
        begin += seconds
    axes.axvline(total, color=GRAY, lw=0.8)
    axes.set_yticks(range(len(terms)), [name for name, _ in terms])
    axes.invert_yaxis()
    axes.set(xlabel="time in the step [s]", xlim=(0.0, 1.12 * total), title="A step of Llama 3.1 405B on 16,384 H100")
    (HERE / "terms.png").write_bytes(save(figure, "png"))


if __name__ == "__main__":
    main()
