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

import msgspec
import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from tests.support.lab import WEFT, Lab, lab, weft
from tests.support.pages import MadeSource, served, state
from tests.support.pages import lab as made
from tests.support.pages import peer as made_peer
from weft.lab.links import ITSELF, Link
from weft.model.value import replace

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
OPENER = build_opener()
NAMED = "[role=button], button, a[href], input"  # what a keyboard reaches


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[BrowserContext]:
    expect.set_options(timeout=120_000)  # milliseconds: a machine that is busy with other work takes a while
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("browser"),
            executable_path=CHROMIUM,
            args=list(ARGUMENTS),
            viewport={"width": 1280, "height": 800},
        )
        context.set_default_timeout(120_000)
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


def test_what_pods_and_peers_carry_is_in_a_nodes_view(page: Page, running: Lab):
    target = running.pod("pod2-1")["addresses"][0].partition("/")[0]
    ping = [WEFT, "lab", "exec", "--lab", running.name, "pod1-1", "--", "ping", "-q", "-i", "0.02", "-w", "60", target]
    with subprocess.Popen(ping, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sending:
        try:
            node(page, "node1").click()
            expect(page.locator(".pods li", has_text="pod1-1")).to_contain_text("sends", timeout=30_000)
            expect(page.get_by_role("table", name="Peers")).to_contain_text("node1 → node2: ", timeout=30_000)
        finally:
            sending.terminate()


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
        steps = page.locator(".hop .sign").evaluate_all("all => all.map(each => each.ariaLabel)")
        assert "passes" not in steps[steps.index("is dropped") :]
        page.keyboard.press("Escape")
        expect(page.locator(".cluster .edge.down")).to_have_attribute("aria-label", re.compile("probes lost"))
    finally:
        running.weft("break", "node2", "forward-dropped", "--mend")
    expect(page.locator(".cluster .edge.down")).to_have_count(0)


def test_the_way_to_the_outside_and_packets_of_a_size(page: Page, running: Lab):
    patience = 60_000
    page.get_by_role("button", name="pod pod1-1 on").click()
    page.locator(".hint").get_by_role("button", name="outside").click()
    expect(page.get_by_role("heading", name="pod1-1 → outside")).to_be_visible()
    expect(page.locator(".verdict.well")).to_be_visible(timeout=patience)
    expect(page.locator(".hop", has_text="SNAT")).to_contain_text("becomes 172.31.0.11")
    expect(page.get_by_text("then from 172.31.0.11 (eth0 of node1)")).to_be_visible()
    expect(page.get_by_role("button", name="The other way")).to_have_count(0)
    size = page.get_by_role("spinbutton", name="Packets of")
    size.fill("9000")
    size.press("Enter")
    refused = "MTU-001 pod1-1: eth0 carries packets up to 1450 bytes"
    expect(page.locator(".verdict.down")).to_contain_text(refused, timeout=patience)
    expect(page.get_by_text("0 of 3 probes of 9000 bytes were answered")).to_be_visible()
    assert page.url.endswith("#/trace/pod1-1/outside/9000")
    size.fill("1450")
    size.press("Enter")
    expect(page.locator(".verdict.well")).to_be_visible(timeout=patience)


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])  # what moves has a place of its own in the stack
def test_in_a_narrow_window_nothing_lies_over_the_time(browser: BrowserContext, url: str, motion: str):
    with opened(browser, f"{url}#/trace/pod1-1/pod2-1") as page:
        page.emulate_media(reduced_motion=motion)
        page.set_viewport_size({"width": 400, "height": 800})
        expect(page.locator(".verdict.well")).to_be_visible()
        under, over = page.evaluate(
            """() => {
            const time = document.getElementById("time");
            const found = [...document.querySelectorAll(".hop .sign")].map((sign) => {
              scrollTo(0, 0);
              scrollTo(0, sign.getBoundingClientRect().top - time.getBoundingClientRect().top - 20);
              const [bar, { left, right, top }] = [time.getBoundingClientRect(), sign.getBoundingClientRect()];
              const isUnder = top > bar.top && top + 8 < bar.bottom;
              return [isUnder, isUnder && !time.contains(document.elementFromPoint((left + right) / 2, top + 8))];
            });
            return [0, 1].map((each) => found.filter((one) => one[each]).length);
            }"""
        )
        assert under > 5
        assert over == 0


def test_what_was_done_to_the_lab_and_what_a_dead_daemon_said_last_stay(page: Page, running: Lab):
    def row(text: str):
        return page.locator("#events .event.lab", has_text=text)

    expect(node(page, "node2")).to_have_attribute("aria-label", re.compile("node2, well"))
    running.weft("kill", "node2/weftd")
    try:
        expect(row("the lab killed node2/weftd")).to_be_visible()
        running.weft("link", "node1", "--loss", "30%")
        expect(row("the lab shaped node1 link")).to_contain_text("as new → loss 30 %")
        running.weft("partition", "node1", "node2")
        expect(row("the lab cut node1 ↔ node2")).to_be_visible()
        expect(node(page, "node2")).to_have_attribute("aria-label", re.compile("broken.*last heard of"))
        node(page, "node2").click()
        page.reload()
        expect(page.locator(".wrong", has_text="what it said last, at")).to_be_visible()
        expect(page.get_by_role("heading", name="Lease", exact=True)).to_be_visible()
        expect(page.get_by_role("row", name=re.compile("node1 .*served"))).to_be_visible()
        expect(page.locator("#events .event", has_text="node2 lease-taken")).to_be_visible()
        expect(row("the lab killed node2/weftd")).to_be_visible()
        expect(row("the lab shaped node1")).to_have_count(0)  # it is not of this node
    finally:
        running.weft("heal")
        running.weft("link", "node1", "--clear")
        running.weft("start", "node2/weftd")
    expect(page.locator(".wrong")).to_have_count(0)
    expect(page.locator("#events .event", has_text="node2 lease-taken")).to_have_count(2)  # each once
    running.weft("break", "node1", "route-lost")
    page.keyboard.press("Escape")
    expect(row("the lab broke node1 route-lost")).to_be_visible()
    shown = page.locator("#events .event").all_text_contents()
    broke, repaired = (next(n for n, text in enumerate(shown) if what in text) for what in ("broke", "node1 repaired"))
    assert broke > repaired  # the newest first


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
    expect(page.locator(".cluster .edge.down")).to_have_count(0)
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
    wrote = weft("ui", "--lab", running.name, "--export", str(file)).stdout
    assert re.fullmatch(rf"wrote {re.escape(str(file))}, the lab at \d\d:\d\d:\d\d\n", wrote)
    with opened(browser, file.as_uri()) as page:
        node(page, "node1").click()
        page.get_by_role("button", name="Interfaces", exact=True).click()
        expect(page.get_by_role("region", name="flannel.1")).to_contain_text("permanent")
        expect(page.locator("#live")).to_contain_text("as it was")
        expect(page.locator("#events .event", has_text="node1 repaired").first).to_be_visible()


def test_a_node_shows_itself_and_its_peers(browser: BrowserContext, running: Lab, tmp_path: Path):
    file = tmp_path / "node.html"
    file.write_text(running.run("node1", "sh", "-c", "weft ui --export /tmp/it.html >/tmp/said && cat /tmp/it.html"))
    assert re.fullmatch(r"wrote /tmp/it.html, this node at [\d:]{8}\n", running.run("node1", "cat", "/tmp/said"))
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
    with pytest.raises(HTTPError) as refused:
        OPENER.open(Request(f"{url}trace", data=b'{"source": "pod1-1", "target": "pod2-1", "size": 67}'))  # noqa: S310
    assert b"68 - at `$.size`" in refused.value.read()
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
        assert process.wait(timeout=200) == 130
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
        expect(page.get_by_role("alert")).to_contain_text("What is shown is of")
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
        expect(page.locator("#events .event")).to_have_text(re.compile("node9 sees node3 \\(10.244.3.0/24\\)"))
        boxes = page.locator(".node .box").evaluate_all("all => all.map(each => each.getBoundingClientRect().toJSON())")
        for number, box in enumerate(boxes):
            for other in boxes[number + 1 :]:
                assert min(box["right"], other["right"]) <= max(box["left"], other["left"]) or min(
                    box["bottom"], other["bottom"]
                ) <= max(box["top"], other["top"])


NARROW_AND_WIDE = ({"width": 400, "height": 800}, {"width": 1280, "height": 800})
NEXT = {400: "node1 – node4", 1280: "node1 – node5"}  # with three columns, and with four
HIDDEN = """() => {
  const boxes = [...document.querySelectorAll(".node .box")].map((box) => box.getBoundingClientRect());
  return [...document.querySelectorAll(".cluster .edge")].map((edge) => {
    const path = edge.querySelector(".thin");
    const at = path.getScreenCTM();
    const behind = new Set();
    for (let done = 0; done <= path.getTotalLength(); done += 2) {
      const { x, y } = path.getPointAtLength(done).matrixTransform(at);
      const isIn = (box) => x > box.left && x < box.right && y > box.top && y < box.bottom;
      boxes.filter(isIn).forEach((box) => behind.add(box));
    }
    return behind.size;
  });
}"""  # of each edge, the nodes that it runs behind


@pytest.mark.parametrize("size", NARROW_AND_WIDE, ids=("narrow", "wide"))
def test_broken_edges_of_many_nodes_run_behind_no_other_and_have_labels(browser: BrowserContext, size: dict[str, int]):
    broken = [(1, 4), (1, 5), (1, 3), (1, 14), (2, 8), (4, 6), (5, 11), (7, 9), (13, 14)]
    states = {
        f"node{one}": state(
            one,
            14,
            peers=[made_peer(n, lacks=["route: no"] if (one, n) in broken else []) for n in range(1, 15) if n != one],
        )
        for one, _ in broken
    }
    with served(MadeSource(made(14, states=states))) as url, opened(browser, url) as page:
        page.set_viewport_size(size)
        expect(page.locator(".cluster .edge.poor")).to_have_count(len(broken))
        expect(page.locator(".cluster .label.poor")).to_have_count(len(broken))
        assert page.evaluate(HIDDEN) == [2] * len(broken)  # the two that it joins
        # Between two that are one above the other it goes no detour.
        below = page.locator(".cluster .edge", has_text=NEXT[size["width"]]).locator(".thin")
        assert below.evaluate("(path) => path.getBoundingClientRect().width") < 60


@pytest.mark.parametrize("size", NARROW_AND_WIDE, ids=("narrow", "wide"))
def test_what_a_lab_does_to_a_link_is_whole_on_its_node(browser: BrowserContext, size: dict[str, int]):
    seen = made(3)
    link = Link(delay=20.0, loss=30.0, rate=50_000_000)
    nodes = [*seen.lab.nodes[:2], msgspec.structs.replace(seen.lab.nodes[2], link=link)]
    shown = replace(seen, lab=msgspec.structs.replace(seen.lab, nodes=nodes))
    with served(MadeSource(shown)) as url, opened(browser, url) as page:
        page.set_viewport_size(size)
        third = page.locator(".node", has=node(page, "node3"))
        expect(third.locator(".detail").first).to_be_visible()
        words = " ".join(third.locator(".detail").all_text_contents())
        assert words == "10.244.3.0/24 link: delay 20 ms, loss 30 %, rate 50 Mbit/s"
        assert third.evaluate(
            """(node) => [...node.querySelectorAll(".detail")].every((text) =>
            text.getBoundingClientRect().right <= node.querySelector(".box").getBoundingClientRect().right)"""
        )


def test_events_that_nodes_tell_of_each_other_are_one_row_and_each_has_its_place_in_time(browser: BrowserContext):
    source = MadeSource(made(4))
    source.happen("node1", "started", "weftd")
    for one in range(1, 5):
        for other in range(1, 5):
            if one != other:
                source.happen(f"node{one}", "joined", f"10.244.{other}.0-24")
    source.happen(ITSELF, "killed", "node2/weftd")
    source.happen(ITSELF, "cut", "node1 ↔ node3")
    with served(source) as url, opened(browser, url) as page:
        rows = page.locator("#events > ol > li")
        expect(rows).to_have_text([re.compile(words) for words in ("cut", "killed", "12 times nodes met", "started")])
        expect(rows.nth(2)).to_contain_text("12 times nodes met: node1 sees node2 (10.244.2.0/24), node1 sees node3")
        rows.nth(2).locator("summary").click()
        expect(rows.nth(2).get_by_role("button")).to_have_count(12)
        source.happen("node4", "repaired", "route")
        expect(rows).to_have_count(5)
        expect(rows.nth(3).locator("details")).to_have_attribute("open", "")
        rows.nth(3).get_by_role("button", name="node2 sees node1").click()
        expect(page.locator("output")).to_contain_text("node2 sees node1 (10.244.1.0/24)")
        expect(rows.first).to_contain_text("4 times nodes met")
        for number in range(5, 13):
            page.keyboard.press(".")
            expect(rows.first).to_contain_text(f"{number} times nodes met")
        page.keyboard.press(".")
        expect(node(page, "node2")).to_have_attribute("aria-label", re.compile("node2, broken.*the lab killed node2"))
        page.keyboard.press(".")
        expect(page.locator(".cluster .edge.down.marked")).to_have_attribute("aria-label", re.compile("node1 – node3"))


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
