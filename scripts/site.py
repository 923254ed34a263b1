"""Makes the docs a site: `python -m scripts.site FOLDER`, with `.venv-release`'s Python. `make site` does both.

Pages stay where they are: a copy of them, with the pages of the repository's root, is what Sphinx reads. A link to any
other file of the repository leads to a copy of that file in the site, so nothing of it lies elsewhere.
"""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from os.path import relpath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import unquote, urlsplit

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
# Pages outside of docs, by where they come to lie in the site.
PAGES: Final = {
    "README.md": "readme.md",
    "deploy/chart/README.md": "reference/chart.md",
    **{f"{name}.md": f"{name.lower()}.md" for name in ("CHANGELOG", "CONTRIBUTING", "GOVERNANCE", "ROADMAP")},
    **{f"{name}.md": f"{name.lower()}.md" for name in ("SECURITY", "SUPPORT")},
}
_FILES: Final = "files"  # of the site: where copies of the repository's other files lie
_SECTIONS: Final = {
    "Tutorial": "tutorial/*",
    "How to": "howto/*",
    "Reference": "reference/*\nreference/plugins/*",
    "Back ends": "backends/*",
    "Explanation": "explanation/*\narchitecture\ncompat\nglossary",
    "Decisions": "decisions/*",
    "Specification": "spec/*",
    "Project": "\n".join(name.removesuffix(".md") for name in PAGES.values() if "/" not in name),
}
_CONF: Final = """\
project = "weft"
project_copyright = "weft's authors; Apache-2.0"
extensions = ["myst_parser"]
myst_enable_extensions = []
myst_heading_anchors = 6
html_theme = "furo"
html_title = "weft VERSION"
html_show_sphinx = False
html_copy_source = False
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
"""
_LINK: Final = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<to>[^)\s]+)\)")
_FENCE: Final = re.compile(r"^ *(```|~~~)")


def stage(source: Path) -> list[str]:
    """Lay out what Sphinx reads; returns links that lead nowhere."""
    shutil.copytree(DOCS, source)
    wrong: list[str] = []
    pages = {path.relative_to(ROOT).as_posix(): f"{path.relative_to(DOCS)}" for path in DOCS.rglob("*.md")} | PAGES
    for name, place in pages.items():
        target = source / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_relinked((ROOT / name).read_text(), name, place, pages=pages, source=source, wrong=wrong))
    with (source / "index.md").open("a") as index:
        for caption, entries in _SECTIONS.items():
            index.write(f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{entries}\n```\n")
    return wrong


def _relinked(text: str, name: str, place: str, *, pages: dict[str, str], source: Path, wrong: list[str]) -> str:
    """The text of a page whose links fit where it comes to lie."""

    def link(found: re.Match[str]) -> str:
        to = urlsplit(found["to"])
        if to.scheme or not to.path:
            return found[0]
        path = (ROOT / name).parent.joinpath(unquote(to.path)).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            wrong.append(f"{name}: {found['to']} is not there")
            return found[0]
        if path.is_dir():
            return found["text"].strip("[]")
        inside = path.relative_to(ROOT).as_posix()
        at = pages.get(inside) or (inside.removeprefix("docs/") if path.is_relative_to(DOCS) else f"{_FILES}/{inside}")
        if not (source / at).exists() and inside not in pages:
            (source / at).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, source / at)
        return f"{found['text']}({relpath(at, Path(place).parent)}{f'#{to.fragment}' if to.fragment else ''})"

    lines, fenced = [], False
    for line in text.splitlines(keepends=True):
        fenced ^= bool(_FENCE.match(line))
        lines.append(line if fenced else _LINK.sub(link, line))
    return "".join(lines)


class _Page(HTMLParser):
    """What a built page has and asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "source", "iframe") and "src" in given:
            self.assets.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "search", "index"):
            self.assets.append(given["href"])


def faults(site: Path) -> list[str]:
    """What is wrong with a built site: links and anchors that lead nowhere, and what it would fetch from elsewhere."""
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for to in (*page.assets, *page.links):
            url = urlsplit(to)
            if url.scheme or url.netloc:
                if to in page.assets and url.scheme != "data":
                    found.append(f"{path.relative_to(site)}: fetches {to}")
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.exists():
                found.append(f"{path.relative_to(site)}: {to} is not there")
            elif target in pages and url.fragment and unquote(url.fragment) not in pages[target].ids:
                found.append(f"{path.relative_to(site)}: {to}: there is no such place on the page")
    return found


def main(out: str, version: str) -> None:
    with TemporaryDirectory() as work:
        source = Path(work, "source").resolve()
        wrong = stage(source)
        (source / "conf.py").write_text(_CONF.replace("VERSION", version))
        sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2", "-b", "html"]
        built = subprocess.run([*sphinx, "-d", f"{work}/trees", source, out], check=False).returncode
        wrong += faults(Path(out).resolve())
        if wrong or built:
            sys.exit("\n".join([*wrong, "site: not as it should be"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
