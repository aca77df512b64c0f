"""Energy saved by a better division of work and power over devices, pipeline stages and within a site.

Prints three tables and writes `result.json` and the figure beside this file.
"""

import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from devices import DeviceGroups, device_groups, least_energy_split

import energymodel as em
from energymodel.runtime.compilation import compiler_options
from energymodel.search.pipeline_clocks import Per, operation_kinds, pipeline_load, stage_clocks
from energymodel.search.site import divide_site_power
from energymodel.solver import RESULTS

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import BLUE, COLORS, GRAY, add_axes, new_figure

HERE = Path(__file__).parent
STEP_TIMES = [1.0, 1.1, 1.25, 1.5, 2.0]  # over the shortest
STRETCHES = [1.0, 1.02, 1.05, 1.1, 1.2]  # of the makespan at full clock
SITE_LIMITS = [10e6, 12.5e6, 15e6, 17.5e6, 20e6, 22.5e6, 25e6]  # W
FOUR_RANKS = ["plan.layout.virtual_stages=1", "plan.layout.pipeline=4", "plan.batch=33554432 token"]


def solved(result: Any) -> bool:
    return bool(np.all(result == RESULTS.successful))


def devices() -> list[dict[str, Any]]:
    """512 H100 beside 512 A100 in one synchronous step of OLMo 2 13B."""
    h100 = em.load_scenario("olmo-2-13b-h100")
    a100 = em.load_scenario("olmo-2-13b-h100", ["system.accelerator=a100-sxm4-80gb"])
    groups = device_groups([h100.system, a100.system], h100.plan, [512.0, 512.0])
    tokens = float(h100.plan.batch[0])
    full = jnp.ones(2)
    rates = groups.count * groups.rate(full)
    fastest = tokens / float(jnp.sum(rates))

    rows = [_even_work(groups, tokens)]
    split = eqx.filter_jit(least_energy_split, compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]
    for ratio in STEP_TIMES:
        # A thousandth of a percent of room: at the very shortest time there is nothing to choose.
        best = split(groups, tokens, jnp.asarray(ratio * fastest * (1.0 + 1e-5)))
        rows.append(
            {
                "split": f"best, {ratio:g} x shortest",
                "step_time_s": float(best.step_time),
                "energy_j_per_token": float(best.energy) / tokens,
                "one_clock_j_per_token": _one_clock(groups, tokens, float(best.step_time)),
                "share_h100": float(best.share[0]),
                "clock_h100": float(best.clock[0]),
                "clock_a100": float(best.clock[1]),
                "on_a100": float(best.on[1]),
                "price_w": float(best.price),
                "solved": solved(best.result),
            }
        )
    return rows


def _even_work(groups: DeviceGroups, tokens: float) -> dict[str, Any]:
    """The same work for each device at full clock: the faster ones wait, at their idle power."""
    full = jnp.ones(2)
    times = tokens / 2.0 / (groups.count * groups.rate(full))
    time = jnp.max(times)
    energy = jnp.sum(groups.count * (groups.busy_power(full) * times + groups.chip.idle_power * (time - times)))
    return {
        "split": "same work, full clock",
        "step_time_s": float(time),
        "energy_j_per_token": float(energy) / tokens,
        "share_h100": 0.5,
        "clock_h100": 1.0,
        "clock_a100": 1.0,
        "on_a100": 1.0,
        "solved": True,
    }


def _one_clock(groups: DeviceGroups, tokens: float, time: float) -> float:
    """Energy per token with one clock for all devices and work in proportion to throughput."""
    rate_and_power = jax.jit(
        lambda clock: (
            jnp.sum(groups.count * groups.rate(clock * jnp.ones(2))),
            jnp.sum(groups.count * groups.busy_power(clock * jnp.ones(2))),
        )
    )
    low, high = 0.2, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rate_and_power(middle)[0] < tokens / time else (low, middle)
    return float(rate_and_power(high)[1]) * time / tokens


def pipelines() -> list[dict[str, Any]]:
    """Llama 3.1 405B: four ranks of 1F1B with clocks in three degrees of detail, and its own interleaved layout."""
    cases: list[tuple[list[str], Per]] = [
        (FOUR_RANKS, "rank"),
        (FOUR_RANKS, "phase"),
        (FOUR_RANKS, "operation"),
        ([], "rank"),
    ]
    rows = []
    for changes, per in cases:
        scenario = em.load_scenario("llama-3.1-405b-h100", changes)
        pipeline, schedule = pipeline_load(scenario.system, scenario.plan)
        kinds = operation_kinds(schedule, "rank")
        clocks = np.full((2, schedule.ranks, 1), float(pipeline.maximum_clock))
        time = float(pipeline.makespan(clocks, schedule, kinds))
        energy = float(pipeline.energy(clocks, kinds, time))
        front = stage_clocks(pipeline, schedule, time * np.asarray(STRETCHES), per=per)
        rows += [
            {
                "ranks": schedule.ranks,
                "chunks": schedule.chunks,
                "microbatches": schedule.microbatches,
                "per": per,
                "time_ratio": float(front.step_time[number]) / time,
                "energy_ratio": float(front.energy[number]) / energy,
                "price_w": float(front.price[number]),
                "paths": front.paths,
                "solved": solved(front.result),
            }
            for number in range(len(STRETCHES))
        ]
    return rows


def site() -> list[dict[str, Any]]:
    """Llama 3.1 405B on 16,384 H100 under a site limit."""
    divided = divide_site_power(em.load_scenario("llama-3.1-405b-h100"), SITE_LIMITS)
    rows = []
    for split in divided:
        limit, choice = float(split.limit), split.choice._asdict()
        row = {
            "limit_w": limit,
            "throughput_token_per_s": float(split.throughput),
            "price_token_per_j": float(split.price),
            **{f"{name}{'_k' if 'temperature' in name else ''}": float(value) for name, value in choice.items()},
            **{f"{name}_w": float(value) for name, value in split.power._asdict().items()},
        }
        mean = row["throughput_token_per_s"] / limit
        rows.append(row | {"mean_token_per_j": mean, "solved": solved(split.result)})
    return rows


def compute() -> dict[str, list[dict[str, Any]]]:
    """All three tables."""
    with jax.enable_x64(True):
        return {"devices": devices(), "pipelines": pipelines(), "site": site()}


def draw(result: dict[str, list[dict[str, Any]]]) -> Any:
    """Three panels: unlike devices, pipeline, site."""
    figure = new_figure(7.4, 2.9)
    devices = add_axes(figure, 1, 3, 1)
    rows = [row for row in result["devices"] if "one_clock_j_per_token" in row]
    shortest = rows[0]["step_time_s"]
    times = [row["step_time_s"] / shortest for row in rows]
    devices.plot(times, [1e3 * row["energy_j_per_token"] for row in rows], "o-", color=BLUE, label="a clock each")
    one_clock = [1e3 * row["one_clock_j_per_token"] for row in rows]
    devices.plot(times, one_clock, "s--", color=GRAY, label="one clock for all")
    devices.set(xlabel="step time / shortest", ylabel="mJ per token", title="H100 beside A100", ylim=(0.0, None))
    devices.legend(frameon=False)

    pipeline = add_axes(figure, 1, 3, 2)
    for color, per in zip(COLORS, ("rank", "phase", "operation"), strict=False):
        rows = [row for row in result["pipelines"] if row["per"] == per and row["ranks"] == 4]
        stretch, saved = zip(*((row["time_ratio"], 100.0 * (1.0 - row["energy_ratio"])) for row in rows), strict=True)
        pipeline.plot(stretch, saved, "o-", color=color)
        pipeline.annotate(f"per {per}", (stretch[-1], saved[-1]), (6, -3), textcoords="offset points", color=color)
    pipeline.set(
        xlabel="makespan / that at full clock", ylabel="energy saved (%)", title="4 ranks of 1F1B", xlim=(0.99, 1.36)
    )

    site = add_axes(figure, 1, 3, 3)
    power = [row["limit_w"] / 1e6 for row in result["site"]]
    site.plot(power, [row["price_token_per_j"] for row in result["site"]], "o-", color=BLUE, label="of the last watt")
    site.plot(power, [row["mean_token_per_j"] for row in result["site"]], "s--", color=GRAY, label="of the mean watt")
    site.set(xlabel="site limit (MW)", ylabel="tokens per joule", title="16,384 H100", ylim=(0.0, 0.7))
    site.legend(frameon=False)
    return figure


def main() -> None:
    result = compute()
    for name, rows in result.items():
        print(f"{name}\n{outputs.table(rows)}\n")
    outputs.write(result, HERE)
    outputs.draw(draw(result), HERE, "power_allocation")


if __name__ == "__main__":
    main()
