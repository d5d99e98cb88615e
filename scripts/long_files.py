"""Lists the product's Python files that are longer than a reader expects. A hint, not a rule.

    python3 -m scripts.long_files

Length is a smell: look for two ideas in such a file. One idea stays in one file, however long.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kinesis_spout", "state", "scheme", "spark_job")
HINT_LINES = 500


def long_files(root: Path) -> list[tuple[str, int]]:
    """Path from the root and number of lines of each file above the limit, longest first."""
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    counts = {
        file.relative_to(root).as_posix(): len(file.read_text("utf-8").splitlines())
        for file in files
    }
    found = [(name, count) for name, count in counts.items() if count > HINT_LINES]
    return sorted(found, key=lambda one: (-one[1], one[0]))


def main() -> None:
    for name, count in long_files(ROOT):
        sys.stdout.write(f"hint: {name} has {count} lines; are there two ideas in it?\n")


if __name__ == "__main__":
    main()
