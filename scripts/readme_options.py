"""The README's table of options, made from the one in `spark_job.options`.

python3 -m scripts.readme_options            prints it
python3 -m scripts.readme_options --write    puts it into README.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from spark_job.options import OPTIONS

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- options: begin -->", "<!-- options: end -->"


def table() -> str:
    """Markdown: option, default, meaning."""
    rows = [
        f"| `{option.name}` | {'' if option.default is None else f'`{option.default}`'} | "
        f"{option.meaning} |"
        for option in OPTIONS.values()
    ]
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows])


def with_table(readme: str) -> str:
    """The README's text with the table between its two marks; raises ValueError when a mark is
    missing.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"README.md lacks the line {BEGIN} or, behind it, {END}; put both where the table "
            "belongs"
        )
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The README's table of options.")
    parser.add_argument("--write", action="store_true", help="put it into README.md")
    if parser.parse_args().write:
        README.write_text(with_table(README.read_text("utf-8")), "utf-8")
    else:
        sys.stdout.write(f"{table()}\n")


if __name__ == "__main__":
    main()
