"""Chromium for tests of the page, and what they do with its controls."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

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


def answers_come_after(page, milliseconds, kind=""):
    """Let what the server sends, or one kind of it, reach the page only so much later, once it is loaded anew.

    A refusal is also of the kind of the request that it refuses.
    """
    page.add_init_script(
        "{ const usual = Object.getOwnPropertyDescriptor(WebSocket.prototype, 'onmessage');"
        "Object.defineProperty(WebSocket.prototype, 'onmessage', { set(hear) { window.socket = this; "
        f"const isLate = (event) => !'{kind}' || ((answer) => [answer.kind, answer.request].includes('{kind}'))"
        "(JSON.parse(event.data));"
        f"usual.set.call(this, (event) => setTimeout(() => hear(event), isLate(event) ? {milliseconds} : 0)); }} }});"
        " }"
    )
    page.reload()
    expect(page.locator("#energy svg")).to_be_visible(timeout=GRACE)


def own_of(page, path):
    return page.locator(f".knob[data-path='{path}']").get_attribute("data-own") or ""
