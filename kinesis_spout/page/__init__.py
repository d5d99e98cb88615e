"""One static page as one file: `index.html`, its style, its script and the JSON that it draws, and
the policy that lets it do no more than it needs.

- `page(data)`: the file, with its data. Without data, its server has them.
- `page_json.observation_json`: an application as the page's JSON.
- `drills.history.picture.drill_json`: a drill's verdict and history as the page's JSON.

Whatever the data contain, the page has no elements but its own: the JSON stands in a block that no
browser runs, without a `<`, and the script makes text of each value.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

_STYLE, _SCRIPT = "page.css", ("picture.js", "page.js")


@cache
def _asset(*names: str) -> str:
    return "".join((files(__package__) / name).read_text("utf-8") for name in names)


@cache
def policy(*, is_live: bool) -> str:
    """The content security policy: this style and this script, and, of a page that a server has,
    requests to that server.
    """

    def digest(*names: str) -> str:
        return f"'sha256-{b64encode(sha256(_asset(*names).encode()).digest()).decode()}'"

    connect = "; connect-src 'self'" if is_live else ""
    return (
        f"default-src 'none'; style-src {digest(_STYLE)}; script-src {digest(*_SCRIPT)}"
        f"{connect}; base-uri 'none'; form-action 'none'"
    )


def page(data: dict[str, Any] | None = None) -> bytes:
    """The file, as UTF-8. `data`: what it shows; None: it asks `/page.json` of its server."""
    parts = {
        "policy": policy(is_live=data is None),
        "style": _asset(_STYLE),
        "script": _asset(*_SCRIPT),
        # JSON in ASCII, so that half a character does no harm; without <, so that no tag ends it.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    first, *others = _asset("index.html").split("@")
    texts = [parts[one] if at % 2 == 0 else one for at, one in enumerate(others)]
    return "".join([first, *texts]).encode()
