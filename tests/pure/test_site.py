"""The docs as a site, as far as that needs no Sphinx: what it reads, and what is looked for in what it wrote."""

from pathlib import Path

from scripts import site


def test_every_link_of_the_pages_leads_to_something_in_the_site(tmp_path: Path):
    source = tmp_path / "source"
    assert site.stage(source) == []
    assert "](howto/upgrade.md)" in (source / "index.md").read_text()
    assert "](../files/deploy/alerts.yaml)" in (source / "reference" / "alerts.md").read_text()
    assert (source / "files" / "deploy" / "alerts.yaml").is_file()
    assert "](howto/release.md)" in (source / "changelog.md").read_text()


def test_a_link_to_nothing_is_named(tmp_path: Path, monkeypatch):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[a](there.md) [b](nowhere.md#x) [c](https://a.example)\n```\n[d](code.md)\n```\n")
    (docs / "there.md").write_text("[up](../../outside.md)\n")
    for name, value in {"ROOT": tmp_path, "DOCS": docs, "PAGES": {}}.items():
        monkeypatch.setattr(site, name, value)
    wrong = site.stage(tmp_path / "source")
    assert sorted(wrong) == ["docs/index.md: nowhere.md#x is not there", "docs/there.md: ../../outside.md is not there"]


def test_what_is_wrong_with_a_built_site_is_named(tmp_path: Path):
    (tmp_path / "good.html").write_text('<h1 id="here">x</h1><a href="#here"></a><a href="https://a.example">far</a>')
    (tmp_path / "bad.html").write_text(
        '<a href="none.html"></a><a href="good.html#not"></a><script src="https://a.example/x.js"></script>'
        '<link rel="stylesheet" href="//a.example/x.css"><img src="data:image/png;base64,">'
    )
    assert sorted(site.faults(tmp_path)) == [
        "bad.html: fetches //a.example/x.css",
        "bad.html: fetches https://a.example/x.js",
        "bad.html: good.html#not: there is no such place on the page",
        "bad.html: none.html is not there",
    ]
