"""`weft ui` in a real browser: a lab drawn, followed, traced, gone back in, exported; and one of a hundred nodes."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, build_opener

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from tests.support.lab import WEFT, Lab, lab, weft
from tests.support.pages import MadeSource, served, state
from tests.support.pages import lab as made
from tests.support.pages import peer as made_peer

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
OPENER = build_opener()
NAMED = "[role=button], button, a[href], input"  # what a keyboard reaches


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[BrowserContext]:
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("browser"),
            executable_path=CHROMIUM,
            args=list(ARGUMENTS),
            viewport={"width": 1280, "height": 800},
        )
        yield context
        context.close()


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`weft ui` and the URL that it prints."""
    command = [WEFT, "ui", "--no-browser", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    with lab("--nodes", "2", "--pods", "2") as running:
        yield running


@pytest.fixture(scope="module")
def url(running: Lab) -> Iterator[str]:
    with serving("--lab", running.name) as (url, _):
        yield url


@pytest.fixture
def page(browser: BrowserContext, url: str) -> Iterator[Page]:
    with opened(browser, url) as page:
        yield page


@contextmanager
def opened(browser: BrowserContext, url: str) -> Iterator[Page]:
    """A page whose scripts and policy nothing complains of."""
    complaints: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    try:
        yield page
        assert not complaints
    finally:
        page.close()


def node(page: Page, name: str):
    return page.locator(f'[data-key="node/{name}"]')


def test_a_lab_is_drawn_and_its_edges_are_measured(page: Page):
    for name in ("node1", "node2"):
        expect(node(page, name)).to_have_attribute("aria-label", re.compile(f"{name}, well, 10.244.*, 2 pods"))
    for name in ("pod1-1", "pod1-2", "pod2-1", "pod2-2"):
        expect(page.get_by_role("button", name=f"pod {name} on")).to_be_visible()
    expect(page.locator(".cluster .edge.well[aria-label*='node1 – node2: well, 0.']")).to_have_count(1)
    expect(page.locator("#live")).to_have_text("live")
    assert page.locator(NAMED).count() > 10
    names = page.locator(NAMED).evaluate_all(
        "all => all.map(each => each.ariaLabel || each.textContent.trim() || each.labels?.[0]?.textContent)"
    )
    assert all(names), names


def test_a_node_and_its_interfaces(page: Page):
    node(page, "node1").click()
    expect(page.get_by_role("heading", name="node1", exact=True)).to_be_focused()
    for title in ("Uplink", "Lease", "Back end", "Daemon", "Repairs", "Calls of plugins", "Peers (1 lease)"):
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("node2 .*served"))).to_be_visible()
    page.get_by_role("button", name="Interfaces", exact=True).click()
    device = page.get_by_role("region", name="flannel.1")
    expect(device).to_contain_text("VNI 1, UDP port 8472")
    expect(device).to_contain_text("behind 172.31.0.12 permanent")
    expect(device).to_contain_text("(weft)")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="interfaces", exact=True).first.click()
    expect(page.get_by_role("region", name="eth0")).to_contain_text("default via 10.244.")


def test_a_repair_is_seen_while_it_happens_by_two_pages(page: Page, browser: BrowserContext, url: str, running: Lab):
    with opened(browser, url) as other:
        for each in (page, other):
            expect(node(each, "node2")).to_be_visible()
        running.run("node1", "sh", "-c", "ip route del $(ip route | grep flannel.1 | cut -d' ' -f1)")
        for each in (page, other):
            expect(each.locator("#events .event", has_text="node1 repaired")).to_contain_text("ROUTE-001")


def test_the_way_between_two_pods(page: Page, running: Lab):
    def trace() -> None:
        page.get_by_role("button", name="pod pod1-1 on").click()
        expect(page.locator(".hint")).to_contain_text("choose the other pod")
        page.get_by_role("button", name="pod pod2-1 on").click()

    trace()
    expect(page.locator(".verdict.well")).to_be_visible()
    expect(page.locator(".leg")).to_have_count(8)
    expect(page.locator(".hop", has_text="FDB").first).to_contain_text("is behind 172.31.0.12")
    running.weft("break", "node2", "forward-dropped")
    try:
        page.get_by_role("button", name="Look again").click()
        expect(page.locator(".verdict.down")).to_contain_text("FW-002")
        expect(page.locator(".hop.down")).to_have_count(1)
        page.keyboard.press("Escape")
        expect(page.locator(".cluster .edge.down")).to_have_attribute(
            "aria-label", re.compile("probes lost"), timeout=20_000
        )
    finally:
        running.weft("break", "node2", "forward-dropped", "--mend")
    expect(page.locator(".cluster .edge.down")).to_have_count(0, timeout=20_000)


def test_a_service_is_traced_to_and_what_the_lab_cuts_is_seen(page: Page, running: Lab):
    running.weft("expose", "web", "--port", "80", "--target-port", "8080", "pod2-1")
    running.weft("link", "node2", "--rate", "500mbit")
    running.weft("partition", "node1", "store")
    try:
        service = page.get_by_role("button", name="Service web")
        expect(page.locator(".services li")).to_contain_text("port 80/TCP → pod2-1")
        expect(node(page, "node2")).to_have_attribute("aria-label", re.compile("link: .*500 Mbit"))
        expect(node(page, "node1")).to_have_attribute("aria-label", re.compile("cut by the lab: node1 → store"))
        service.click()
        expect(page.locator(".hint")).to_contain_text("choose the pod that asks it")
        page.get_by_role("button", name="pod pod1-1 on").click()
        expect(page.get_by_role("heading", name="pod1-1 → web:80")).to_be_visible()
        # Nothing listens there, and a refusal is an answer.
        expect(page.locator(".verdict.well")).to_be_visible()
        expect(page.locator(".hop", has_text="DNAT").first).to_contain_text("10.244.")
        page.keyboard.press("Escape")
        running.weft("partition", "node1", "node2")
        expect(page.locator(".cluster .edge.down")).to_have_attribute(
            "aria-label", re.compile("cut by the lab: node1 → node2; cut by the lab: node2 → node1")
        )
    finally:
        running.weft("heal")
        running.weft("link", "node2", "--clear")
        running.weft("unexpose", "web")
    expect(page.locator(".cluster .edge.down")).to_have_count(0, timeout=20_000)
    expect(page.locator(".services")).to_have_count(0)


def test_back_in_time(page: Page, running: Lab):
    running.run("node2", "ip", "link", "set", "eth0", "down")
    expect(page.locator("#events .event", has_text="node2 uplink-lost")).to_be_visible()
    running.run("node2", "ip", "link", "set", "eth0", "up")
    expect(page.locator("#events .event", has_text="node2 uplink-back")).to_be_visible()
    page.locator("#events .event", has_text="node2 uplink-lost").get_by_role("button").click()
    expect(page.locator("#live")).to_have_text("in the past")
    expect(node(page, "node2")).to_have_attribute("aria-label", re.compile("node2, broken.*uplink-lost eth0"))
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(page.locator("output")).to_have_text("before all events that are kept")
    page.keyboard.press("l")
    expect(page.locator("#live")).to_have_text("live")


def test_by_the_keyboard_alone(page: Page):
    node(page, "node1").focus()
    page.keyboard.press("ArrowRight")
    expect(node(page, "node2")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="node2", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(node(page, "node2")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="pod pod2-1 on")).to_be_focused()
    page.keyboard.press("Space")
    expect(page.locator(".hint")).to_contain_text("pod2-1")
    page.keyboard.press("Escape")
    expect(page.locator(".hint")).to_contain_text("Choose two pods")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)


def test_a_file_of_it_opens_without_a_server(browser: BrowserContext, running: Lab, tmp_path: Path):
    file = tmp_path / "lab.html"
    nowhere = file.parent / "none" / "lab.html"
    refused = weft("ui", "--lab", running.name, "--export", str(nowhere), check=False)
    assert (refused.returncode, nowhere.parent.exists()) == (2, False)
    assert f"FLAG-001 --export {nowhere}: its directory does not exist" in refused.stderr
    weft("ui", "--lab", running.name, "--export", str(file))
    with opened(browser, file.as_uri()) as page:
        node(page, "node1").click()
        page.get_by_role("button", name="Interfaces", exact=True).click()
        expect(page.get_by_role("region", name="flannel.1")).to_contain_text("permanent")
        expect(page.locator("#live")).to_contain_text("as it was")
        expect(page.locator("#events .event", has_text="node1 repaired")).to_be_visible()


def test_a_node_shows_itself_and_its_peers(browser: BrowserContext, running: Lab, tmp_path: Path):
    file = tmp_path / "node.html"
    file.write_text(running.run("node1", "sh", "-c", "weft ui --export /tmp/it.html >/tmp/said && cat /tmp/it.html"))
    with opened(browser, file.as_uri()) as page:
        expect(node(page, "172.31.0.12")).to_have_attribute("aria-label", re.compile("well"))
        expect(page.locator(".cluster .edge.well")).to_have_attribute("aria-label", re.compile("answers"))
        node(page, "node1").click()
        expect(page.get_by_role("row", name=re.compile("172.31.0.12 .*served"))).to_be_visible()


def test_a_name_and_what_is_not_there_are_refused(url: str):
    for path, headers, status in (
        ("", {"Host": "evil.example"}, 421),
        ("static/../app.py", {}, 404),
        ("static/%2e%2e%2fapp.py", {}, 404),
        ("interfaces/node9", {}, 400),
    ):
        with pytest.raises(HTTPError) as refused:
            OPENER.open(Request(url + path, headers=headers))  # noqa: S310 - the URL is our own
        assert refused.value.code == status
        refused.value.close()
    with pytest.raises(HTTPError) as refused:
        OPENER.open(Request(f"{url}trace", data=b'{"source": "pod1-1", "target": "pod9"}'))  # noqa: S310 - as above
    assert b"pod9" in refused.value.read()
    refused.value.close()


def test_at_another_address_a_token_is_needed(running: Lab, browser: BrowserContext):
    with serving("--lab", running.name, "--listen", "0.0.0.0") as (url, _):  # noqa: S104 - of this test
        assert re.fullmatch(r"http://0\.0\.0\.0:\d+/\?token=[\w-]{32}", url)
        bare, _, _ = url.partition("?")
        with pytest.raises(HTTPError, match="401"):
            OPENER.open(bare)
        with opened(browser, url) as page:
            expect(node(page, "node1")).to_be_visible()
            assert page.url == bare


def test_ctrl_c_ends_it_while_a_page_is_open(running: Lab, browser: BrowserContext):
    with serving("--lab", running.name) as (url, process):
        page = browser.new_page()
        page.goto(url)
        expect(node(page, "node1")).to_be_visible()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == "Ctrl-C ends it"
        expect(page.get_by_role("alert")).to_contain_text("weft ui does not answer any more. What is shown is of")
        expect(node(page, "node1")).to_be_visible()
        page.close()


def test_a_lab_that_goes_away_leaves_what_was_seen(browser: BrowserContext):
    with lab("--nodes", "1", "--pods", "1") as short, serving("--lab", short.name) as (url, _):
        page = browser.new_page()
        page.goto(url)
        expect(node(page, "node1")).to_be_visible()
        short.weft("down", check=False)
        weft("lab", "down", short.name, check=False)
        expect(page.get_by_role("alert")).to_contain_text("What is shown is of", timeout=20_000)
        expect(node(page, "node1")).to_be_visible()
        expect(page.locator("#live")).to_have_text("away")
        page.close()


def test_a_hundred_nodes(browser: BrowserContext):
    lacking = [made_peer(n, lacks=["route: no"] if n == 7 else []) for n in range(1, 101) if n != 5]
    lost = state(42, 100, ready=False, peers=[])
    source = MadeSource(made(100, pods=5, states={"node5": state(5, 100, peers=lacking), "node42": lost}))
    with served(source) as url, opened(browser, url) as page:
        expect(page.locator(".node")).to_have_count(100)
        expect(page.locator(".cluster .edge.poor")).to_have_count(1)  # of 4,950, which are well but for node42's
        expect(page.locator(".node .badge")).to_have_text("✕ 99")
        source.happen("node9", "joined", "10.244.3.0-24")
        expect(page.locator("#events .event", has_text="node9 joined")).to_contain_text("(node3)")
        boxes = page.locator(".node .box").evaluate_all("all => all.map(each => each.getBoundingClientRect().toJSON())")
        for number, box in enumerate(boxes):
            for other in boxes[number + 1 :]:
                assert min(box["right"], other["right"]) <= max(box["left"], other["left"]) or min(
                    box["bottom"], other["bottom"]
                ) <= max(box["top"], other["top"])


def test_there_is_nothing_to_show():
    refused = weft("ui", "--lab", "none-of-this-name", "--no-browser", check=False)
    assert (refused.returncode, "LAB-002" in refused.stderr) == (2, True)
    refused = weft("ui", "--lab", "a", "--instance", "b", check=False)
    assert (refused.returncode, "--lab beside --instance" in refused.stderr) == (2, True)
    elsewhere = {**os.environ, "WEFT_LAB": "a"}
    refused = weft("ui", "--instance", "none-of-this-name", "--no-browser", check=False, env=elsewhere)
    assert (refused.returncode, "INST-003" in refused.stderr) == (1, True)
    refused = weft("ui", "--listen", "my.name", check=False)
    assert (refused.returncode, "--listen: my.name" in refused.stderr) == (2, True)
