"""The pages of the documentation (README, CONTRIBUTING and docs), their code blocks, and the
commands in them.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
SHELLS = ("sh", "bash", "shell", "console")
_MADE = ("_build", "_generated")
_SEPARATORS = frozenset({"|", "||", "&&", ";", "&"})
_REDIRECTIONS = frozenset({"<", ">", ">>", "<<", "2>", ">&"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_QUOTED_COMMAND = re.compile(r"`((?:make|kinesis-spout) [a-z][^`]*)`")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: its line, its info string, and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """One Markdown file; `name` is its path from the root."""

    name: str
    text: str

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All code blocks, also those inside a directive such as a note."""
        return tuple(self._blocks_in(self.text, 0))

    def _blocks_in(self, text: str, before: int) -> Iterator[Block]:
        for token in MarkdownIt().parse(text):
            if token.type != "fence" or token.map is None:
                continue
            line = before + token.map[0] + 1
            info = token.info.strip()
            if info.startswith("{code"):
                yield Block(self.name, line, info.partition("}")[2].strip(), token.content)
            elif info.startswith("{"):
                yield from self._blocks_in(token.content, line)
            else:
                yield Block(self.name, line, info, token.content)

    @cached_property
    def prose(self) -> str:
        """The text without its code blocks."""
        lines = self.text.splitlines()
        for token in MarkdownIt().parse(self.text):
            if token.type == "fence" and token.map is not None and token.info[:1] != "{":
                start, end = token.map
                lines[start:end] = [""] * (end - start)
        return "\n".join(lines)

    def of(self, *languages: str) -> list[Block]:
        return [block for block in self.blocks if block.language in languages]


def pages(root: Path = ROOT) -> list[Page]:
    """README, CONTRIBUTING, and every page of the site that is not generated."""
    found = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    return [
        Page(path.relative_to(root).as_posix(), path.read_text("utf-8"))
        for path in found
        if not set(_MADE) & set(path.relative_to(root).parts)
    ]


def blocks(*languages: str) -> list[Block]:
    """The blocks of all pages in these languages."""
    return [block for page in pages() for block in page.of(*languages)]


def runs_by_itself(block: Block) -> bool:
    """Whether a Python block is a whole program: it creates the stream that it reads, or needs none
    and checks its results.
    """
    return "FakeKinesisServer(" in block.text or "\nassert " in block.text


def needs_spark(block: Block) -> bool:
    return any(name.split(".")[0] in {"pyspark", "spark_job"} for name in imported(block))


def imported(block: Block) -> set[str]:
    """The modules that a Python block imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return found


def lines_of(block: Block) -> list[str]:
    """The command lines of a shell block; continued lines are joined."""
    joined = block.text.replace("\\\n", " ")
    if block.language == "console":
        joined = "\n".join(line[2:] for line in joined.splitlines() if line.startswith("$ "))
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def commands_in(line: str) -> list[list[str]]:
    """The words of each command of a line, without redirections and leading assignments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if word in _SEPARATORS:
            found.append([])
        elif word in _REDIRECTIONS:
            skip = True
            if found[-1] and found[-1][-1].isdigit():  # a file descriptor
                found[-1].pop()
        elif skip:
            skip = False
        elif found[-1] or not _ASSIGNMENT.match(word):
            found[-1].append(word)
    return [words for words in found if words]


def commands() -> list[tuple[str, list[str]]]:
    """The place and the words of each command: those of shell blocks, and `make ...` and
    `kinesis-spout ...` in sentences.
    """
    found = [
        (str(block), words)
        for block in blocks(*SHELLS)
        for line in lines_of(block)
        for words in commands_in(line)
    ]
    quoted = [
        (page.name, shlex.split(text.replace("\n", " ")))
        for page in pages()
        for text in _QUOTED_COMMAND.findall(page.prose)
    ]
    return found + quoted
