"""The page as one file that opens without a server. Pure.

Without a server no module can import another, so all become one script. So no two modules may use one name for two
things at their top level.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

_IMPORT: Final = re.compile(r"^import \{[^}]*\} from \"\./([a-z]+\.js)\";\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)
_STYLE: Final = '<link rel="stylesheet" href="static/style.css">'
_SCRIPT: Final = '<script type="module" src="static/main.js"></script>'
_ICON: Final = '<link rel="icon" href="static/icon.svg">'


def page(files: Mapping[str, str], shown: Mapping[str, Any]) -> str:
    """`files` are the page's own, by name."""
    style, script = files["style.css"], bundled(files, "main.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:"
    data = msgspec.json.encode(shown).decode().replace("<", "\\u003c")  # `</script>` in it ends nothing
    icon = base64.b64encode(files["icon.svg"].encode()).decode()
    text = files["page.html"]
    for place, instead in (
        ("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        (_ICON, f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">'),
        (_STYLE, f"<style>{style}</style>"),
        (
            _SCRIPT,
            f'<script type="application/json" id="shown">{data}</script>\n<script type="module">{script}</script>',
        ),
    ):
        if text.count(place) != 1:
            raise ValueError(f"page.html has not one {place}")
        text = text.replace(place, instead)
    return text


def bundled(files: Mapping[str, str], first: str) -> str:
    """Each module that `first` needs, once, behind those that it imports."""
    return "".join(_IMPORT.sub("", _EXPORT.sub("", files[name])) for name in _in_order(files, first, set()))


def _in_order(files: Mapping[str, str], name: str, seen: set[str]) -> Iterable[str]:
    if name in seen:
        return
    seen.add(name)
    for needed in _IMPORT.findall(files[name]):
        yield from _in_order(files, needed, seen)
    yield name


def _hash(text: str) -> str:
    """What a policy calls an inline style or script (CSP Level 3, 2.3.1)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
