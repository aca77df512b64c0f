"""The page of a small scenario in the system's Chromium."""

import pytest

from explorer_page import small_explorer


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    from explorer.controls import CHROMIUM, FLAGS, REQUIRED

    assert CHROMIUM.exists(), f"{REQUIRED} is set, but {CHROMIUM} is not there."
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server():
    from energymodel.explorer.server import ExplorerServer

    with ExplorerServer(small_explorer(), warm=False) as running:
        yield running


@pytest.fixture
def opened(browser, server):
    """Opens pages, and fails if any of them complains in its console or asks another server."""
    from playwright.sync_api import expect

    from explorer.controls import GRACE

    complaints, contexts = [], []

    def open_page(width=1200, address=server.address, scheme="light"):
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(GRACE)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(server.address) or complaints.append(request.url))
        page.goto(address)
        expect(page.locator("#energy svg")).to_be_visible(timeout=GRACE)
        expect(page.locator("#connection")).to_have_text("Connected.")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
