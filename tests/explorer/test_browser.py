"""The page in a browser: it loads, follows each slider, searches, and is read by everyone."""

import json
import re

import pytest
from playwright.sync_api import expect

from energymodel.explorer.knobs import BATCH, CLOCK
from energymodel.scenarios.scenario import load_scenario
from explorer.controls import (
    FIGURES,
    GRACE,
    LEAKAGE,
    answers_come_after,
    field,
    open_groups,
    press,
    slider,
    tile,
    wait_until,
)


@pytest.mark.slow
def test_every_slider_moves_the_page(opened):
    page = opened()
    open_groups(page)
    paths = [knob.get_attribute("data-path") for knob in page.locator(".knob").all()]
    assert len(paths) >= 15
    for path in paths:
        before = page.locator("#results").inner_html()
        own = slider(page, path).input_value()
        press(page, path, "ArrowLeft" if float(own) > 500 else "ArrowRight", 5)
        expect(page.locator(f".knob[data-path='{path}']")).to_have_class(re.compile("moved"))
        wait_until(page, "before => document.querySelector('#results').innerHTML !== before", before)
        assert page.locator("#error").is_hidden(), page.locator("#error").inner_text()
    for name in FIGURES:
        figure = page.locator(f"#{name} svg")
        assert figure.locator("rect, path, circle, polygon, polyline").count() >= 3, name
        assert figure.locator("desc").text_content(), name
        assert "NaN" not in figure.inner_html(), name


def test_plan_is_optimized_pinned_shared_and_reloaded(opened, tmp_path):
    page = opened()
    press(page, CLOCK, "ArrowLeft", 3)
    page.locator("#pin").click()
    expect(page.locator("#compare th", has_text="plan 1")).to_be_visible()

    page.locator("#optimize").click()
    expect(page.locator("#found")).to_contain_text("at the same loss", timeout=GRACE)
    expect(page.locator("#found li").first).to_be_visible()
    clock = field(page, CLOCK).input_value()
    expect(page).to_have_url(re.compile(f"plan.clock={clock[:5]}.*pin="))
    expect(page.locator(".tiles .interval").first).to_be_visible()  # the controls rest
    energy = tile(page, "Energy").inner_text()
    again = opened(address=page.url)
    expect(field(again, CLOCK)).to_have_value(clock)
    expect(tile(again, "Energy")).to_have_text(energy)
    expect(again.locator("#compare th", has_text="plan 1")).to_be_visible()
    again.reload()
    expect(field(again, CLOCK)).to_have_value(clock)
    expect(tile(again, "Energy")).to_have_text(energy)

    with again.expect_download() as download:
        again.locator("#save").click()
    file = tmp_path / "saved.toml"
    download.value.save_as(file)
    assert float(load_scenario(file).plan.clock) == pytest.approx(float(clock), rel=1e-5)

    again.get_by_role("button", name="Remove plan 1").click()
    expect(again.locator("#compare")).to_be_hidden()
    page.screenshot(path=tmp_path / "optimized.png", full_page=True)


def test_impossible_plan_keeps_the_last_picture(opened):
    page = opened()
    page.locator("summary", has_text="Hardware").click()
    press(page, LEAKAGE, "End")
    expect(page.locator("#error")).to_contain_text("for switching")
    assert page.locator("#energy svg").count() == 1
    press(page, LEAKAGE, "Home")
    expect(page.locator("#error")).to_be_hidden()


def test_other_numbers_and_layouts_can_be_chosen(opened):
    page = opened()
    page.locator("summary", has_text="Any other number").click()
    page.locator("#other").fill("system.accelerator.memory_capacity")
    page.keyboard.press("Enter")
    expect(slider(page, "system.accelerator.memory_capacity")).to_be_focused()
    field(page, "system.accelerator.memory_capacity").fill("40")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("memory_capacity=4"))
    page.locator("#layout-tensor").select_option("4")
    expect(page).to_have_url(re.compile("layout.tensor=4"))
    expect(page.locator("#replicas")).to_contain_text("Data parallel: 4")


def test_resting_page_asks_for_nothing_and_keeps_its_intervals(opened):
    page = opened()
    press(page, CLOCK, "ArrowLeft")
    expect(page).to_have_url(re.compile("#plan.clock="))
    intervals = page.locator(".tiles .interval")
    expect(intervals.first).to_be_visible()
    page.evaluate(
        "() => { window.asked = []; const send = WebSocket.prototype.send; WebSocket.prototype.send = "
        "function (text) { window.asked.push(JSON.parse(text).kind); return send.call(this, text); }; }"
    )
    wait_until(page, "() => document.querySelector('#summary').textContent !== ''")
    page.locator("#thermal").scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    sent = page.evaluate("window.asked")
    assert set(sent) <= {"state"}, sent
    assert len(sent) <= len(FIGURES)
    assert intervals.count() >= 10


def test_number_typed_outside_its_range_is_told(opened):
    page = opened()
    field(page, CLOCK).fill("90")
    field(page, CLOCK).press("Enter")
    expect(page.locator("#error")).to_contain_text("90 is outside the range of the slider")
    expect(field(page, CLOCK)).to_have_value(field(page, CLOCK).get_attribute("max") or "")
    press(page, CLOCK, "ArrowLeft")
    expect(page.locator("#error")).to_be_hidden()


def test_refusal_of_something_else_leaves_the_search_alone(opened):
    page = opened()
    answers_come_after(page, 3000, "optimized")
    page.locator("#optimize").click()
    page.locator("summary", has_text="Any other number").click()
    page.locator("#other").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("not a number of this scenario")
    expect(page.locator("#optimize")).to_be_disabled()
    expect(page.locator("#found")).to_contain_text("at the same loss", timeout=GRACE)
    expect(page.locator("#optimize")).to_be_enabled()


def test_narrow_and_dark_pages_show_everything(opened, tmp_path):
    for scheme in ("light", "dark"):
        page = opened(width=400, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        for name in FIGURES:
            # A late answer may draw the figure anew.
            page.wait_for_function(
                "name => { const figure = document.querySelector(`#${name} svg`);"
                " const width = figure?.getBoundingClientRect().width ?? 0; return 250 < width && width <= 400; }",
                arg=name,
            )
        page.screenshot(path=tmp_path / f"narrow-{scheme}.png", full_page=True)


def test_keyboard_and_screen_reader_reach_every_control(opened):
    page = opened()
    open_groups(page)
    wanted = page.evaluate(
        "[...document.querySelectorAll('button, input, select, summary')].filter(e => e.checkVisibility()).length"
    )
    reached = set()
    page.locator("body").focus()
    for _ in range(wanted + 10):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(() => { const e = document.activeElement; e.dataset.seen ??= Math.random(); "
                "return e.matches('button, input, select, summary') ? e.dataset.seen : ''; })()"
            )
        )
    assert len(reached - {""}) == wanted
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select')].filter(e => !e.labels?.length && !e.ariaLabel).map(e => e.id)"
    )
    assert unnamed == []
    assert "GHz" in page.locator(".knob[data-path='plan.clock'] .note").inner_text()
    press(page, CLOCK, "ArrowLeft")
    expect(page.locator("#summary")).to_contain_text("Energy", ignore_case=True)
    assert json.loads(page.evaluate("JSON.stringify(document.querySelector('#error').role)")) == "alert"


def test_number_that_was_typed_is_that_of_the_plan_once_it_settled(opened):
    page = opened()
    batch = field(page, BATCH)
    batch.fill("300")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#plan.batch=262144$"))  # whole rounds of micro-batches
    expect(batch).to_have_value("262.144")
    batch.press_sequentially("7")
    press(page, CLOCK, "ArrowLeft")
    expect(page).to_have_url(re.compile("#plan.batch=262144&plan.clock="))
    expect(batch).to_have_value("262.144")


@pytest.mark.slow
def test_what_needs_the_connection_says_so_while_there_is_none(opened):
    page = opened()
    answers_come_after(page, 0)
    page.locator("summary", has_text="Any other number").click()
    page.evaluate("() => { document.querySelector('#optimize').click(); socket.close(); }")
    expect(page.locator("#found")).to_contain_text("no search")
    expect(page.locator("#optimize")).to_be_enabled()
    expect(page.locator("#connection")).to_have_text("Connected.")  # again
    page.evaluate(
        "() => { const at = (id) => document.getElementById(id); at('found').textContent = ''; socket.close();"
        " at('optimize').click(); at('other').value = 'system.accelerator.memory_capacity'; at('add').click(); }"
    )
    expect(page.locator("#found")).to_contain_text("no search")
    expect(page.locator("#error")).to_contain_text("no new control")
    page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError()); }")
    page.locator("#save").click()
    expect(page.locator("#error")).to_contain_text("Nothing is saved")
    page.locator("#other").fill(CLOCK)
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("has a control already")
