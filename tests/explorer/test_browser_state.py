"""The state of the page in its address: links, pins, reloads, and answers that come late."""

import re

import pytest
from playwright.sync_api import expect

from energymodel.explorer.knobs import CLOCK
from energymodel.explorer.messages import LONGEST
from explorer.controls import GRACE, LEAKAGE, answers_come_after, field, own_of, press

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


def test_number_that_is_refused_once_more_after_the_next_move_is_not_told_again(opened):
    page = opened()
    answers_come_after(page, 200, "knob")
    answers_come_after(page, 1200, "state")
    page.evaluate("() => { location.hash = 'nonsense=3'; }")
    expect(page.locator("#error")).to_contain_text("nonsense")
    press(page, CLOCK, "ArrowLeft")
    expect(page).to_have_url(re.compile(r"#plan\.clock=[0-9.]+$"))
    expect(page.locator("#error")).to_be_hidden()


def test_link_that_is_too_long_for_a_message_is_told_and_left_out(opened, server):
    page = opened(address=f"{server.address}#plan.clock=0.8&pin=name%3D{'n' * LONGEST}")
    expect(page.locator("#error")).to_contain_text("The link holds")
    expect(page.locator("#connection")).to_have_text("Connected.")
    expect(field(page, CLOCK)).to_have_value(f"{float(own_of(page, CLOCK)):g}")


def test_link_brings_the_control_of_its_number(opened, server):
    path = "system.accelerator.memory_capacity"
    page = opened(address=f"{server.address}#{path}=4e10")
    expect(field(page, path)).to_have_value("40")


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
    expect(page.locator("#compare thead th[class]")).to_have_count(13)  # own plan, and six others with their changes


def test_slow_answers_after_an_impossible_plan_bring_intervals_and_the_address(opened):
    page = opened()
    answers_come_after(page, 500)
    page.locator("summary", has_text="Hardware").click()
    press(page, LEAKAGE, "End")
    expect(page.locator("#error")).to_contain_text("for switching")
    press(page, LEAKAGE, "Home")
    expect(page.locator(".tiles .interval").first).to_be_visible()
    expect(page).to_have_url(re.compile("#system.accelerator.leakage.power=7$"))


def test_layout_of_a_plan_is_shown_where_its_chips_leave_no_choice(opened, server):
    page = opened(address=f"{server.address}#pin=name%3Done%26plan.chips%3D1")
    page.locator("#layout-tensor").select_option("4")
    expect(page.locator("#replicas")).to_contain_text("Data parallel: 4")
    page.get_by_role("button", name="Go to one").click()
    expect(page.locator("#replicas")).to_contain_text("Data parallel: 1")
    expect(page.locator("#layout-tensor")).to_have_count(0)
    page.locator("#reset").click()
    expect(page.locator("#layout-tensor")).to_have_value("1")


@pytest.mark.slow
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


@pytest.mark.slow
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
