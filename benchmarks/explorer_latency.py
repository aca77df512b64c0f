"""Latency of the page of `energymodel explore`, from an input to its picture, by part.

Sliders are moved by the keyboard in the system's Chromium. The end is the second animation frame after the new figures
are in the page, when the first one that shows them has been painted. "Server" is from sending the state to its answer;
evaluation and drawing are parts of it, the rest is JSON and the connection.

    python benchmarks/explorer_latency.py [SCENARIO] [--chromium PATH]
"""

import argparse
import gc
import os
import time
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from energymodel.explorer.explorer import Explorer
from energymodel.explorer.server import ExplorerServer
from energymodel.scenarios.scenario import load_scenario

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
PATHS = ("plan.clock", "plan.batch", "plan.coolant_temperature", "plan.chips", "system.market.price.electricity")
INPUTS = 60  # for each slider
PAUSE = 60.0  # ms between inputs: about as fast as a key repeats
LIMIT = 50.0  # ms, at the 95th percentile
QUANTILES = (50.0, 95.0, 99.0)
PARTS = ("input to picture", "waiting to be sent", "server", "  evaluation", "  drawing", "into the page", "painting")
READ = """performance.getEntriesByName("energymodel-picture").map((one) => [
  one.duration, one.detail.sent - one.startTime, one.detail.received - one.detail.sent, one.detail.evaluate,
  one.detail.draw, one.detail.placed - one.detail.received, one.startTime + one.duration - one.detail.placed])"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="?", default="llama-3.1-405b-h100")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    explorer = Explorer(load_scenario(arguments.scenario))
    gc.freeze()  # as the command does
    print(f"{arguments.scenario}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"compiled evaluation of the plan and those near it: {evaluation(explorer):.2f} ms")
    with ExplorerServer(explorer, warm=False) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(server.address)
        page.locator("#energy svg").wait_for()
        page.locator("details.group:has([data-path='system.market.price.electricity']) > summary").click()
        page.wait_for_timeout(1000.0)
        measured = np.concatenate([moved(page, path) for path in PATHS])
        browser.close()
    print(f"{len(measured)} pictures, {page_size(explorer)}; load {os.getloadavg()[0]:.1f} at the end")
    print(f"{'ms':20}" + "".join(f"{f'p{quantile:g}':>8}" for quantile in QUANTILES))
    for part, column in zip(PARTS, measured.T, strict=True):
        print(f"{part:20}" + "".join(f"{np.percentile(column, quantile):8.1f}" for quantile in QUANTILES))
    slowest = float(np.percentile(measured[:, 0], 95.0))
    print(f"95th percentile {slowest:.1f} ms: {'within' if slowest <= LIMIT else 'above'} {LIMIT:g} ms")


def evaluation(explorer: Explorer) -> float:
    """Median time of the compiled program [ms]."""
    own = explorer.own
    around: Any = explorer.around(own)
    times = []
    for _ in range(200):
        started = time.perf_counter()
        explorer.evaluator(own.vector, *around)
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times))


def moved(page: Page, path: str) -> np.ndarray:
    """Times of the pictures while a slider goes back and forth [ms]."""
    page.evaluate("performance.clearMeasures('energymodel-picture')")
    page.locator(f".knob[data-path='{path}'] input[type=range]").focus()
    for index in range(INPUTS):
        page.keyboard.press("ArrowLeft" if (index // 10) % 2 == 0 else "ArrowRight")
        page.wait_for_timeout(PAUSE)
    page.wait_for_timeout(1500.0)
    return np.array(page.evaluate(READ), np.float64)


def page_size(explorer: Explorer) -> str:
    return f"{len(explorer.space.knobs)} numbers with a slider, 1200 x 900 pixels"


if __name__ == "__main__":
    main()
