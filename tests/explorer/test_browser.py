"""The page in the system's Chromium: it loads, follows each slider, searches, pins, shares and reloads."""

import json
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from energymodel.explorer.knobs import BATCH, CLOCK
from energymodel.explorer.messages import LONGEST
from energymodel.explorer.server import ExplorerServer
from energymodel.scenarios.scenario import load_scenario
from explorer_page import small_explorer

CHROMIUM = Path(os.environ.get("ENERGYMODEL_CHROMIUM", "/usr/bin/chromium"))
REQUIRED = "ENERGYMODEL_REQUIRE_BROWSER"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
FIGURES = ("front", "energy", "time", "money", "roofline", "thermal")
LEAKAGE = "system.accelerator.leakage.power"
GRACE = 300_000.0  # ms, for a search that compiles
expect.set_options(timeout=60_000.0)  # ms: other tests may keep both cores busy

if not CHROMIUM.exists() and not os.environ.get(REQUIRED):
    pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM.exists(), f"{REQUIRED} is set, but {CHROMIUM} is not there."
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server():
    with ExplorerServer(small_explorer(), warm=False) as running:
        yield running


@pytest.fixture
def opened(browser, server):
    """Opens pages, and fails if any of them complains in its console or asks another server."""
    complaints, contexts = [], []

    def open_page(width=1200, address=server.address, scheme="light"):
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(GRACE)
        page.on("console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda one: None if one.url.startswith(server.address) else complaints.append(one.url))
        page.goto(address)
        expect(page.locator("#energy svg")).to_be_visible(timeout=GRACE)
        expect(page.locator("#connection")).to_have_text("Connected.")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def slider(page, path):
    return page.locator(f".knob[data-path='{path}'] input[type=range]")


def field(page, path):
    return page.locator(f".knob[data-path='{path}'] input[type=number]")


def press(page, path, key, times=1):
    slider(page, path).focus()
    for _ in range(times):
        page.keyboard.press(key)


def tile(page, title):
    return page.locator(f".tiles div:has(dt:text-is('{title}')) .value")


def open_groups(page):
    closed = page.locator("details.group:not([open]) > summary")
    while closed.count():
        closed.first.click()


def wait_until(page, function, argument=None):
    """Wait until a function of the page is true; the policy of the page forbids what Playwright waits with."""
    for _ in range(400):
        if page.evaluate(function, argument):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"{function} was not true in time.")


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

    before = field(page, CLOCK).input_value()
    page.locator("#optimize").click()
    expect(page.locator("#found")).to_contain_text("at the same loss", timeout=GRACE)
    expect(field(page, CLOCK)).not_to_have_value(before)
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


IN_VAIN = {
    "nonsense=3&plan.clock=0.9": "nonsense",
    "plan.clock=90": "outside the range",
    "layout.nothing=1": "not a field",
    "pin=name%3Dmine%26nonsense%3D3": "mine",
    f"pin=name%3Dmine%26{LEAKAGE}%3D700": "for switching",
    f"pin=name%3D{'n' * 61}": "at most 60 characters",
    "=5": "'' is not a number",
    "pins=5": "'pins' is not a number",
    "pins.x=5": "'pins.x' is not a number",
    "plan.clock=1e400": "1e400 is not a finite number",
    "layout.tensor=0": "not a value",
    f"layout.tensor={'8' * 400}": "not a value",
}


def test_what_a_link_asks_for_in_vain_is_told_and_left_out(opened, server):
    first, *others = IN_VAIN
    page = opened(address=f"{server.address}#{first}")
    for wanted in (first, *others):
        if wanted != first:
            page.evaluate("wanted => { location.hash = wanted; }", wanted)
        expect(page.locator("#error")).to_contain_text(IN_VAIN[wanted])
        clock = 0.9 if wanted == first else float(own_of(page, CLOCK))
        expect(field(page, CLOCK)).to_have_value(f"{clock:g}")
        press(page, CLOCK, "ArrowLeft")
        expect(page.locator("#error")).to_be_hidden()
        expect(page).to_have_url(re.compile(r"#plan\.clock=[0-9.]+$"))


def test_link_that_is_too_long_for_a_message_is_told_and_left_out(opened, server):
    page = opened(address=f"{server.address}#plan.clock=0.8&pin=name%3D{'n' * LONGEST}")
    expect(page.locator("#error")).to_contain_text("The link holds")
    expect(page.locator("#connection")).to_have_text("Connected.")
    expect(field(page, CLOCK)).to_have_value(f"{float(own_of(page, CLOCK)):g}")


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


def test_link_brings_the_control_of_its_number(opened, server):
    path = "system.accelerator.memory_capacity"
    page = opened(address=f"{server.address}#{path}=4e10")
    expect(field(page, path)).to_have_value("40")


def test_narrow_and_dark_pages_show_everything(opened, tmp_path):
    for scheme in ("light", "dark"):
        page = opened(width=400, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        for name in FIGURES:
            box = page.locator(f"#{name} svg").bounding_box()
            assert box is not None
            assert 250 < box["width"] <= 400
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
    assert "MHz" in page.locator(".knob[data-path='plan.clock'] .note").inner_text()
    press(page, CLOCK, "ArrowLeft")
    expect(page.locator("#summary")).to_contain_text("Energy", ignore_case=True)
    assert json.loads(page.evaluate("JSON.stringify(document.querySelector('#error').role)")) == "alert"


def answers_come_after(page, milliseconds, kind=""):
    """Let what the server sends, or one kind of it, reach the page only so much later, once it is loaded anew."""
    page.add_init_script(
        "const usual = Object.getOwnPropertyDescriptor(WebSocket.prototype, 'onmessage');"
        "Object.defineProperty(WebSocket.prototype, 'onmessage', { set(hear) { window.socket = this; "
        f"const isLate = (event) => !'{kind}' || JSON.parse(event.data).kind === '{kind}';"
        f"usual.set.call(this, (event) => setTimeout(() => hear(event), isLate(event) ? {milliseconds} : 0)); }} }});"
    )
    page.reload()
    expect(page.locator("#energy svg")).to_be_visible(timeout=GRACE)


def own_of(page, path):
    return page.locator(f".knob[data-path='{path}']").get_attribute("data-own") or ""


def test_reset_holds_while_an_older_picture_is_on_its_way(opened, server):
    page = opened(address=f"{server.address}#plan.clock=0.8")
    answers_come_after(page, 200)
    press(page, CLOCK, "ArrowLeft")
    page.locator("#reset").click()
    page.wait_for_timeout(1500)
    expect(field(page, CLOCK)).to_have_value(f"{float(own_of(page, CLOCK)):g}")
    expect(page).to_have_url(server.address)


def test_going_to_another_address_leaves_nothing_of_the_one_before(opened, server):
    page = opened(address=f"{server.address}#plan.clock=0.8&pin=name%3Dslow%26plan.clock%3D0.5")
    expect(page.locator("#compare th", has_text="slow")).to_be_visible()
    page.evaluate("() => { location.hash = '#plan.coolant_temperature=300'; }")
    expect(page).to_have_url(re.compile("#plan.coolant_temperature=300$"))
    expect(page.locator("#compare")).to_be_hidden()
    page.wait_for_timeout(1000)
    expect(page).to_have_url(re.compile("#plan.coolant_temperature=300$"))
    expect(field(page, CLOCK)).to_have_value(f"{float(own_of(page, CLOCK)):g}")


def test_skipping_to_the_results_keeps_the_plan(opened, server):
    page = opened(address=f"{server.address}#plan.clock=0.8")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#results")).to_be_focused()
    page.wait_for_timeout(1000)
    expect(page).to_have_url(re.compile("#plan.clock=0.8$"))
    expect(field(page, CLOCK)).to_have_value("0.8")


def test_pins_beyond_six_and_an_impossible_one_are_told_and_spare_the_others(opened, server):
    pinned = "&".join(f"pin=name%3Dp{count}%26plan.clock%3D0.{count}" for count in range(2, 9))
    page = opened(address=f"{server.address}#{pinned}")
    expect(page.locator("#error")).to_contain_text("7 pinned plans; only the first 6")
    expect(page.locator(".pinned")).to_have_count(6)
    press(page, CLOCK, "ArrowLeft")
    page.locator("#pin").click()
    page.wait_for_timeout(1000)
    expect(page.locator("#error")).to_contain_text("Six plans are pinned")
    expect(page).to_have_url(re.compile("#plan.clock="))
    page.get_by_role("button", name="Remove p7").click()
    expect(page.locator("#error")).to_be_hidden()
    page.locator("summary", has_text="Hardware").click()
    press(page, LEAKAGE, "End")
    expect(page.locator("#error")).to_contain_text("for switching")
    page.locator("#pin").click()
    expect(page.locator("#error")).to_contain_text("Pinned plan 'plan 1'")
    expect(page.locator(".pinned")).to_have_count(5)
    expect(page.locator("#compare thead th")).to_have_count(7)


def test_slow_answers_after_an_impossible_plan_bring_intervals_and_the_address(opened):
    page = opened()
    answers_come_after(page, 500)
    page.locator("summary", has_text="Hardware").click()
    press(page, LEAKAGE, "End")
    expect(page.locator("#error")).to_contain_text("for switching")
    press(page, LEAKAGE, "Home")
    expect(page.locator(".tiles .interval").first).to_be_visible()
    expect(page).to_have_url(re.compile("#system.accelerator.leakage.power=7$"))


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


def test_layout_of_a_plan_is_shown_where_its_chips_leave_no_choice(opened, server):
    page = opened(address=f"{server.address}#pin=name%3Done%26plan.chips%3D1")
    page.locator("#layout-tensor").select_option("4")
    expect(page.locator("#replicas")).to_contain_text("Data parallel: 4")
    page.get_by_role("button", name="Go to one").click()
    expect(page.locator("#replicas")).to_contain_text("Data parallel: 1")
    expect(page.locator("#layout-tensor")).to_have_count(0)
    page.locator("#reset").click()
    expect(page.locator("#layout-tensor")).to_have_value("1")


def test_search_that_ends_after_the_layout_moved_goes_to_the_plan_that_it_found(opened):
    page = opened()
    answers_come_after(page, 3000, "optimized")
    page.locator("#optimize").click()
    page.locator("#layout-tensor").select_option("4")
    expect(page.locator("#found")).to_contain_text("at the same loss", timeout=GRACE)
    expect(page.locator("#layout-tensor")).to_have_value("1")
    expect(page).to_have_url(re.compile("#plan.c[^#]*$"))
    assert "layout" not in page.url
    page.locator("#undo").click()
    expect(page).to_have_url(re.compile("#layout.tensor=4$"))


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


def test_reset_forgets_a_number_whose_control_is_on_its_way(opened, server):
    path = "system.accelerator.memory_capacity"
    page = opened()
    answers_come_after(page, 300)
    page.evaluate(f"() => {{ location.hash = '#{path}=4e10'; }}")
    page.wait_for_timeout(100)
    page.locator("#reset").click()
    expect(field(page, path)).to_have_value(f"{float(own_of(page, path)) / 1e9:g}")
    page.wait_for_timeout(1000)
    expect(page).to_have_url(server.address)
