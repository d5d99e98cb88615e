"""Links between the repository's pages lead to files that are there. Those inside of the site, with
their anchors, are checked by its build (`test_site`).
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tests.support.shell.pages import ROOT, Page, pages

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE_LINK = re.compile(r"\[`([\w.]+)`\]\(([^)\s]+\.py)\)")


def dead_links(page: Page) -> list[str]:
    """Targets of links in the page that are no files."""
    folder = (ROOT / page.name).parent
    targets = [target.partition("#")[0] for target in LINK.findall(page.prose)]
    return [
        target
        for target in targets
        if target and "://" not in target and not (folder / PurePosixPath(target)).exists()
    ]


def test_files_that_pages_link_to_are_there() -> None:
    assert dead_links(Page("README.md", "[a](nowhere.md#x) [b](LICENSE) [c](#here)")) == [
        "nowhere.md"
    ]
    # The landing page names pages of a whole checkout (`scripts.reference.sidebar`).
    found = {page.name: dead_links(page) for page in pages() if page.name != "docs/index.md"}
    assert {name: dead for name, dead in found.items() if dead} == {}


def test_the_code_that_a_records_way_names_is_in_the_file_that_it_links_to() -> None:
    page = ROOT / "docs" / "concepts" / "a-records-way.md"
    named = CODE_LINK.findall(re.sub(r"\s+", " ", page.read_text(encoding="utf-8")))
    assert len(named) > 20
    for name, target in named:
        source = (page.parent / target).read_text(encoding="utf-8")
        defined = re.findall(r"^ *(?:class|def) (\w+)", source, re.MULTILINE)
        assert set(name.split(".")) <= {*defined, PurePosixPath(target).stem}, (name, target)
