"""A file above 500 lines is named as a hint; nothing fails for its length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.long_files import HINT_LINES, long_files

if TYPE_CHECKING:
    from pathlib import Path


def test_files_above_the_hint_are_named_the_longest_first(tmp_path: Path) -> None:
    for name, lines in {"a": HINT_LINES, "b": HINT_LINES + 1, "c": HINT_LINES + 9}.items():
        file = tmp_path / "state" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("x = 1\n" * lines)
    assert long_files(tmp_path) == [("state/c.py", HINT_LINES + 9), ("state/b.py", HINT_LINES + 1)]
