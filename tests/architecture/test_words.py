"""One vocabulary, the field's: words that readers stumbled over do not come back.

CONTRIBUTING.md has the glossary. A word is listed here only where the term to use instead is known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.architecture.source_tree import OTHER_CODE, PACKAGES, ROOT, write_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INSTEAD = {
    r"anew": "again",
    r"by and by": "eventually",
    r"found out": "detected",
    r"who takes": "callers that",
    r"wh(?:at|ich) (?:became|becomes|came|comes) of": "outcome of",
    r"(?:is|are|was|were|be|been) told of": "learns of, is reported",
    r"(?:taken|takes|took|take) up": "assigned, assigns",
    r"(?:laid|lays|lay) down": "released, releases",
    r"list rings": "the watch fires",
    r"in vain": "without success",
    r"no witness": "does not count as evidence",
    r"is no UTF-8": "is not UTF-8",
    r"storms?(?![ _-]spout)": "outage",
    r"longer and longer": "exponential backoff",
    r"(?:StartWish|RetryRoom|ShardEnd|TaskEnd|AckerCore|TrackerCore|seen_ms)": "see rooms",
}
_WORDS = [(re.compile(rf"\b{words}\b"), instead) for words, instead in INSTEAD.items()]
_STORED_KEYS = re.compile(r'"storms?"')  # what ZooKeeper holds keeps its names
_ELSEWHERE = {"node_modules", "_generated"}  # not ours; made of the code
_PROSE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "localstack")


def odd_words(root: Path) -> list[str]:
    """File, line, the word and what to say instead."""
    return [
        f"{path.relative_to(root).as_posix()}:{number} {found.group()!r}: say {instead!r}"
        for path in _texts(root)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        for pattern, instead in _WORDS
        if (found := pattern.search(_STORED_KEYS.sub("", line)))
    ]


def _texts(root: Path) -> Iterator[Path]:
    for name in dict.fromkeys((*PACKAGES, *OTHER_CODE, *_PROSE)):
        place = root / name
        files = (
            [place]
            if place.is_file()
            else sorted(place.rglob("*.py")) + sorted(place.rglob("*.md"))
        )
        for file in files:
            if file.exists() and file.name != "test_words.py" and not _ELSEWHERE & {*file.parts}:
                yield file


def test_one_vocabulary_runs_through_code_and_docs(tmp_path: Path) -> None:
    """In names, comments, docstrings, messages and pages. Apache Storm is a name and stays."""
    bad = write_tree(
        tmp_path,
        {
            "state/plan.py": 'storms: int = field(name="storms")\n# Storm is a project\n',
            "docs/a.md": "The shard is taken up anew.\n",
            "README.md": "The Storm spout.\n",
        },
    )
    assert odd_words(bad) == [
        "state/plan.py:1 'storms': say 'outage'",
        "docs/a.md:1 'anew': say 'again'",
        "docs/a.md:1 'taken up': say 'assigned, assigns'",
    ]
    assert odd_words(ROOT) == []
