"""Who may read the page: by the Host header, by the token, and what another site's page may ask."""

from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from weft.ui.app import POLICY, Guard, is_address

TOKEN = "a-token-of-chance"


async def ask(
    token: str = "", *, method: str = "GET", path: str = "/", query: str = "", **headers: str
) -> tuple[int, dict[str, str], str]:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    given = {"host": "127.0.0.1:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "server": ("127.0.0.1", 8000),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    await Guard(PlainTextResponse("the page"), token=token)(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], found, b"".join(part.get("body", b"") for part in said[1:]).decode()


async def test_every_answer_bears_the_policy():
    for answer in (await ask(), await ask(host="evil.example"), await ask(TOKEN)):
        assert answer[1]["content-security-policy"] == POLICY
        assert answer[1]["x-content-type-options"] == "nosniff"
        assert answer[1]["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "host, may",
    [
        ("127.0.0.1:8000", True),
        ("localhost:8000", True),
        ("LOCALHOST", True),
        ("[::1]:8000", True),
        ("[::1]", True),
        ("192.0.2.7", True),
        ("evil.example:8000", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1:80@evil.example", False),
        ("", False),
        ("[::1", True),
        ("[evil.example]", False),
    ],
)
async def test_a_page_is_opened_by_an_address(host, may):
    assert is_address(host) == may
    assert (await ask(host=host))[0] == (200 if may else 421)


async def test_without_a_token_whoever_reaches_the_socket_may_read():
    assert await ask() == (200, (await ask())[1], "the page")


@pytest.mark.parametrize("cookie", ["", "weft-ui-8000=other", "weft-ui-9000=a-token-of-chance", "weft-ui-8000=\u00e4"])
async def test_a_token_is_asked_for(cookie):
    status, _, text = await ask(TOKEN, cookie=cookie)
    assert status == 401
    assert TOKEN not in text


async def test_the_token_leaves_the_address_and_the_cookie_opens_the_page():
    assert (await ask(TOKEN, query="token=wrong"))[0] == 401
    status, headers, _ = await ask(TOKEN, query=f"token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=strict" in headers["set-cookie"]
    assert headers["set-cookie"].startswith("weft-ui-8000=")  # a page at another port has a cookie of its own
    assert (await ask(TOKEN, cookie=headers["set-cookie"].partition(";")[0]))[0] == 200


@pytest.mark.parametrize("site, status", [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)])
async def test_another_page_may_not_have_a_trace_made(site, status):
    assert (await ask(method="POST", sec_fetch_site=site))[0] == status


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/\\evil.example/x", "/\\/evil.example", "//"])
async def test_a_token_leads_to_no_other_server(path):
    code, headers, _ = await ask(TOKEN, path=path, query=f"token={TOKEN}")
    assert code == 303
    assert headers["location"].startswith("/")
    assert headers["location"][1:2] not in ("/", "\\")
    assert "%5C" not in headers["location"][:4]


@pytest.mark.parametrize(
    "headers, may",
    [
        ({}, True),  # no browser
        ({"origin": "http://127.0.0.1:8000"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://127.0.0.1:9000"}, False),
        ({"origin": "null"}, False),
        ({"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:8000"}, True),
        ({"sec_fetch_site": "cross-site"}, False),
    ],
)
async def test_a_question_of_another_page_is_known_by_its_origin_too(headers, may):
    """At an address that is not the machine's own a browser says nothing of Sec-Fetch-Site (plain HTTP)."""
    code, _, _ = await ask(method="POST", path="/trace", **headers)
    assert (code == 403) is not may
