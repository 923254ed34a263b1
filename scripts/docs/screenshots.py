"""`python -m scripts.docs.screenshots`: takes the pictures of the page in docs/images from a lab, to be looked at.

Needs root and Chromium, as the page's tests do. What it does to the lab is what the pictures' captions say.
"""

import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, expect, sync_playwright

from tests.lab.test_ui import ARGUMENTS, CHROMIUM, node, serving
from tests.support.lab import Lab, lab

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
SIZE: Final = {"width": 1200, "height": 720}


def main() -> None:
    with (
        lab("--nodes", "3", "--pods", "3", name="weft") as running,
        serving("--lab", running.name) as (url, _),
        tempfile.TemporaryDirectory() as profile,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, args=list(ARGUMENTS), viewport=SIZE, reduced_motion="reduce"
        )
        page = browser.new_page()
        page.goto(url)
        running.weft(
            "expose", "web", "--port", "80", "--target-port", "8080", "--node-port", "30080", "pod2*", "pod3-1"
        )
        _lab(page, running)
        _node(page, running)
        _trace(page, running)
        _past(page, running)
        browser.close()


def _shot(page: Page, name: str) -> None:
    page.mouse.move(0, 0)
    page.screenshot(path=IMAGES / f"ui-{name}.png")


def _lab(page: Page, running: Lab) -> None:
    """The way between two nodes is cut."""
    running.weft("partition", "node1", "node2")
    expect(page.locator(".cluster .label.down", has_text="cut")).to_have_count(1)
    expect(page.locator(".cluster .label", has_text="ms")).to_have_count(2, timeout=20_000)
    _shot(page, "lab")
    running.weft("heal")


def _node(page: Page, running: Lab) -> None:
    """A route that somebody deleted was put back."""
    running.run("node1", "ip", "route", "delete", "10.244.2.0/24")
    expect(page.locator("#events .event", has_text="node1 repaired").first).to_be_visible()
    node(page, "node1").click()
    expect(page.get_by_role("heading", name="Repairs")).to_be_visible()
    _shot(page, "node")
    page.get_by_role("button", name="Interfaces", exact=True).click()
    expect(page.get_by_role("region", name="flannel.1")).to_be_visible()
    _shot(page, "interfaces")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")


def _trace(page: Page, running: Lab) -> None:
    """A packet filter of node2 drops what it forwards."""
    running.weft("break", "node2", "forward-dropped")
    page.get_by_role("button", name="pod pod1-1 on").click()
    page.get_by_role("button", name="pod pod2-1 on").click()
    expect(page.locator(".verdict.down")).to_be_visible()
    _shot(page, "trace")
    running.weft("break", "node2", "forward-dropped", "--mend")
    page.keyboard.press("Escape")


def _past(page: Page, running: Lab) -> None:
    """Node3 while its uplink was lost."""
    running.run("node3", "ip", "link", "set", "eth0", "down")
    expect(page.locator("#events .event", has_text="node3 uplink-lost")).to_be_visible()
    running.run("node3", "ip", "link", "set", "eth0", "up")
    expect(page.locator("#events .event", has_text="node3 uplink-back")).to_be_visible()
    page.locator("#events .event", has_text="node3 uplink-lost").get_by_role("button").click()
    expect(page.locator("#live")).to_have_text("in the past")
    _shot(page, "past")


if __name__ == "__main__":
    main()
