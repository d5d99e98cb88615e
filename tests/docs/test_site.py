"""The site builds without a warning, from what is in the checkout, and asks no other host for
anything.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.reference.sidebar import with_pages
from tests.support.shell.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT_S = 300
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')
LINKED = re.compile(r'<a [^>]*href="([^"#?]*)')


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make docs` does: once for all processes that test."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.fail("Sphinx is not installed; make setup-test brings it")
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "site"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            build(folder)
            (folder / "built").touch()
    return folder / "html"


def build(folder: Path) -> None:
    options = ["-n", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def html_pages(site: Path) -> list[Path]:
    return [path for path in site.rglob("*.html") if "_static" not in path.parts]


def loaded_from_elsewhere(texts: Iterable[str]) -> set[str]:
    """Addresses of other hosts that a browser asks by itself, which links are not."""
    found = {match[1] or match[2] for text in texts for match in LOADED.finditer(text)}
    return {address for address in found if re.match(r"(?:[a-z]+:)?//", address)}


def test_the_site_needs_no_other_host(site: Path) -> None:
    """It is read offline, and tells nobody that it is."""
    made_up = '<script async src="https://a/b.js"></script><link rel="x" href="//c/d.css" />'
    assert loaded_from_elsewhere([made_up]) == {"https://a/b.js", "//c/d.css"}
    assert loaded_from_elsewhere(path.read_text("utf-8") for path in html_pages(site)) == set()
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert [
        style[:80] for style in styles if re.search(r"url\(\s*['\"]?(?:https?:)?//", style)
    ] == []


def test_every_page_is_reached_from_the_first(site: Path) -> None:
    """By links of the pages, as a reader goes."""
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


def test_the_pages_of_the_reference_show_what_was_made(site: Path) -> None:
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


def test_the_landing_page_leaves_out_what_is_not_there(tmp_path: Path) -> None:
    """A pattern or a link without a page would be a warning; so would a pattern whose pages earlier
    ones have taken.
    """
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "one.md").write_text("# One\n")
    text = "start/on*\nstart/*\nguides/*\n[One](start/one.md) and [Operate](operate.md)\n"
    assert with_pages(text, tmp_path) == "start/on*\n[One](start/one.md) and Operate\n"
    (tmp_path / "start" / "two.md").write_text("# Two\n")
    assert with_pages(text, tmp_path).startswith("start/on*\nstart/*\n")
