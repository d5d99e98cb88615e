"""The site builds without a warning, from what is in the checkout, and asks no other host for
anything.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.shell.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT_S = 300
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')
LINKED = re.compile(r'<a [^>]*href="([^"#?]*)')


def test_the_site_is_whole_and_needs_no_other_host(tmp_path: Path) -> None:
    """Built as `make docs` does, once: it takes twenty seconds."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.fail("Sphinx is not installed; make setup-test brings it")
    site = tmp_path / "html"
    options = ["-n", "-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    check_that_no_other_host_is_asked(site)
    check_that_every_page_is_reached(site)
    check_that_the_reference_shows_what_was_made(site)


def html_pages(site: Path) -> list[Path]:
    return [path for path in site.rglob("*.html") if "_static" not in path.parts]


def loaded_from_elsewhere(texts: Iterable[str]) -> set[str]:
    """Addresses of other hosts that a browser asks by itself, which links are not."""
    found = {match[1] or match[2] for text in texts for match in LOADED.finditer(text)}
    return {address for address in found if re.match(r"(?:[a-z]+:)?//", address)}


def check_that_no_other_host_is_asked(site: Path) -> None:
    """The site is read offline, and tells nobody that it is."""
    made_up = '<script async src="https://a/b.js"></script><link rel="x" href="//c/d.css" />'
    assert loaded_from_elsewhere([made_up]) == {"https://a/b.js", "//c/d.css"}
    assert loaded_from_elsewhere(path.read_text("utf-8") for path in html_pages(site)) == set()
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert [
        style[:80] for style in styles if re.search(r"url\(\s*['\"]?(?:https?:)?//", style)
    ] == []


def check_that_every_page_is_reached(site: Path) -> None:
    """From the first, by links of the pages, as a reader goes."""
    reached: set[Path] = set()
    waiting = [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in reached or not path.is_file() or path.suffix != ".html":
            continue
        reached.add(path)
        targets = LINKED.findall(path.read_text("utf-8"))
        inside = [target for target in targets if target and "://" not in target]
        waiting += [Path(os.path.normpath(path.parent / target)) for target in inside]
    made_by_sphinx = {site / "genindex.html", site / "search.html", site / "py-modindex.html"}
    assert set(html_pages(site)) - reached - made_by_sphinx == set()


def check_that_the_reference_shows_what_was_made(site: Path) -> None:
    """An include that finds nothing would leave an empty page."""
    for name, text in {
        "options": "maxRecordsPerShard",
        "errors": "StillThrottledError",
        "command-line": "--available-now",
        "zookeeper": "verifiedUntilMs",
        "aws": "kinesis:GetShardIterator",
        "api/spark": "read_stream",
    }.items():
        assert text in (site / "reference" / f"{name}.html").read_text("utf-8"), name
