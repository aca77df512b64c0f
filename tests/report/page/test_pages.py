"""Pages of results: sound, with the sections of their command, and with the numbers of the JSON."""

import dataclasses
import shutil
from functools import lru_cache

import numpy as np
import pytest

from energymodel.report.answer import Sentence
from energymodel.report.answers.details import elasticities_of_plan, energy_flow, money_parts
from energymodel.report.answers.pareto import pareto_answer
from energymodel.report.number import sentence
from energymodel.report.page import page_html
from outcomes import outcome_of
from report.page.read_page import ReadPage, assert_sound
from report.reference_optimum import infeasible, optimum
from report.stored_answers import answer, evaluated, front

COMMAND = 'energymodel evaluate small --set "plan.clock=<0.9>"'


@lru_cache(maxsize=1)
def evaluated_page() -> tuple[str, ReadPage]:
    warned = dataclasses.replace(answer("evaluate"), warnings=[Sentence("a <warning>")])
    markup = page_html(warned, COMMAND)
    return markup, assert_sound(markup, data=False)


@lru_cache(maxsize=1)
def optimum_read() -> tuple[str, ReadPage]:
    markup = page_html(answer("optimize"), COMMAND)
    return markup, assert_sound(markup, data=False)


def test_a_hostile_title_stays_text():
    markup, page = evaluated_page()
    assert "<script>alert" not in markup
    assert "\u202e" not in markup
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in markup
    assert markup.count("<script>") == 1
    assert "a <warning>" in page.text
    assert any(COMMAND in text for text in page.text)


def test_sections_follow_from_the_command():
    _, page = evaluated_page()
    assert page.headings == [
        "Summary",
        "Plan",
        "Outcome, and its 90 % interval",
        "Energy",
        "Time of one step",
        "Margin to each limit, of the value",
        "Money by what it pays for",
        "Energy from the grid to bits",
        "A step of the plan",
        "What one percent changes: energy",
        "What makes the energy uncertain",
        "Numbers of the system that nobody measured",
        "Notes",
        "Repeat it",
    ]
    _, best = optimum_read()
    assert best.headings[:4] == ["Summary", "Plan", "Outcome, and its 90 % interval", "Energy"]
    assert {"Shadow prices of the limits", "Saving by cause", "Layouts compared", "A step of the plan"} <= set(
        best.headings
    )


def test_the_summary_is_three_sentences_and_one_figure():
    for markup, _ in (evaluated_page(), optimum_read()):
        summary = markup[markup.index('class="em-summary"') : markup.index("<nav")]
        assert summary.count('<p class="em-lead"') == 3
        assert summary.count("<figure") == 1


def test_numbers_are_those_of_the_json():
    _, outcome, _ = evaluated()
    _, page = evaluated_page()
    for title, name in (("switching", "dynamic"), ("cooling", "cooling"), ("host, fans, network cards", "host")):
        assert float(getattr(outcome.energy, name)) in page.numbers(title)
    assert float(outcome.step_time.compute) in page.numbers("matrix products")
    assert float(np.asarray(outcome.energy.total)) in page.numbers("energy")
    assert float(outcome.mfu) in page.numbers("model FLOP utilization")


def test_both_plans_of_a_search_are_shown():
    best = optimum()
    markup, page = optimum_read()
    assert {float(run.energy.dynamic) for run in (best.baseline, best.outcome)} <= page.numbers("switching")
    # an elasticity of 0.25: 1 % more time saves 1 - 1.01^-0.25 = 0.2484 % of the energy
    assert any(abs(number + 0.0024845) < 1e-6 for number in page.numbers("time"))
    assert "1 % more time saves 0.25 % energy" in markup
    assert "Another layout takes at least 1.2 % more energy" in markup
    assert "energymodel evaluate test-1b-h100" in markup


def test_a_search_without_an_answer_says_so():
    refused = infeasible()
    page = ReadPage(page_html(answer("optimize, infeasible"), COMMAND))
    words = " ".join(page.text)
    assert "No plan was found that can be trusted" in words
    assert refused.conflicts[0].limit in words


def test_elasticities_are_those_of_whole_runs():
    scenario, outcome, _ = evaluated()
    by_path = elasticities_of_plan(scenario, scenario.plan, "energy")
    assert not any(path.startswith(("plan.", "system.workload.")) for path in by_path)
    assert "system.accelerator.maximum_temperature" not in by_path, "a percent of an absolute temperature says nothing"
    path = "system.accelerator.busy_power"
    moved = outcome_of(scenario.name, f"{path}={1.01 * float(np.asarray(scenario.system.accelerator.busy_power))} W")
    secant = np.log(np.asarray(moved.energy.total) / np.asarray(outcome.energy.total)) / np.log(1.01)
    assert by_path[path] == pytest.approx(secant, rel=0.01)
    both = elasticities_of_plan(scenario, scenario.plan, "etp")
    times = elasticities_of_plan(scenario, scenario.plan, "time")
    assert both[path] == pytest.approx(by_path[path] + times[path], abs=1e-9)


def test_money_by_what_it_pays_for_adds_up():
    scenario, outcome, _ = evaluated()
    parts = money_parts(scenario, scenario.plan, outcome)
    assert sum(parts.values()) == pytest.approx(float(outcome.money), rel=1e-9)
    price = scenario.system.market.price
    energy = float(np.asarray(outcome.energy.total))
    assert parts["energy"] == pytest.approx(energy * float(price.electricity), rel=1e-9)  # pyright: ignore[reportAttributeAccessIssue]


def test_the_stream_of_energy_keeps_its_amount():
    _, outcome, _ = evaluated()
    table = energy_flow(outcome)[0]
    flows = [
        (source, target, table.number("amount", row)[1].value) for row, (source, target, *_) in enumerate(table.rows)
    ]
    out_of = {name: sum(value for source, _, value in flows if source == name) for name, _, _ in flows}
    into = {target: value for _, target, value in flows}
    total = float(np.asarray(outcome.energy.total))
    assert out_of["grid"] == pytest.approx(total)
    assert all(out_of[name] == pytest.approx(into[name]) for name in out_of if name != "grid")
    assert into["operations of the model"] == pytest.approx(float(outcome.euf) * total)


def test_a_front_shows_its_plans():
    markup = page_html(answer("pareto"), COMMAND)
    page = assert_sound(markup, data=False)
    assert page.headings[1] == "3 plans"
    # (6e4 - 5e4) / 5e4 and (5e8 - 4.4e8) / 5e8
    assert "20 % more time saves 12 % energy from end to end of the front" in markup
    assert "1 % more time saves from 0.80 % to 0.10 % energy" in markup
    hover = [text for text in page.text if "\nchips " in text and "\nclock" in text]
    assert len(hover) == 6  # each of three plans, for wide and for narrow screens


def test_a_wide_front_says_how_many_times_and_not_percent():
    fast, *others = front().points
    fast = dataclasses.replace(fast, values={"energy": 5e8, "time": 6e3})
    title = sentence(pareto_answer(dataclasses.replace(front(), points=(fast, *others))).charts[0].title)
    assert "10 times the time saves 12 % energy from end to end of the front" in title


def test_a_sensitivity_shows_what_to_measure():
    page = assert_sound(page_html(answer("sensitivity"), COMMAND), data=False)
    assert "Measure next: energy with each uncertain number at its 5 % and 95 % quantile" in page.headings
    # gemm_efficiency takes the energy of 100 J to 110 and to 92 J
    assert {0.1, -0.08} <= {round(number, 9) for number in page.numbers("system.accelerator.gemm_efficiency")}


SPILLED = """() => [...document.querySelectorAll("svg.em-chart text")].filter((text) => {
  const whole = text.closest("svg").getBoundingClientRect(), one = text.getBoundingClientRect();
  return one.width && (one.left < whole.left - 1 || one.right > whole.right + 1 || one.bottom > whole.bottom + 1);
}).map((text) => text.textContent)"""
OVERLAPPING = """() => [...document.querySelectorAll("svg.em-chart")].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([words, a], place) => boxes.slice(place + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4).map(([others]) => `${words} | ${others}`));
})"""


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium, without network."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are opened by playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened.new_context(offline=True)
        opened.close()


@pytest.mark.parametrize("made", [evaluated_page, optimum_read])
def test_a_browser_shows_the_page_without_network(browser, tmp_path, made):
    file = tmp_path / "report.html"
    file.write_text(made()[0], encoding="utf-8")
    page, complaints = browser.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for width in (1200, 400):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(SPILLED) == []
        assert page.evaluate(OVERLAPPING) == []
    page.locator(".em-narrow g:last-of-type .em-area").first.hover()
    assert page.locator(".em-tip").inner_text().startswith(("energy: ", "own plan: ", "found: "))
    page.locator(".em-theme").click()
    assert page.locator("html").get_attribute("class") in ("em-dark", "em-light")
    page.locator(".em-data summary").first.click()
    page.locator(".em-copy").first.click()
    page.get_by_text("Copied").wait_for()
    assert complaints == []
