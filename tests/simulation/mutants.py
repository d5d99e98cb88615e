"""Faults to put back into the product: each is a replacement in one file, or several of them, with
the test that has to catch it.

`faults/*.txt` has them, by what they are about. A fault is its name behind `#`, and for each edit
the file and the lines that change, as `diff` writes them. Behind the first file stands the catcher.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SIMULATION = "the simulation"
SPOUT_SIMULATION = "the spout's simulation"
DRILL = "drill "  # a catcher that begins with it is a recovery drill
FAULTS = Path(__file__).with_name("faults")


class Edit(NamedTuple):
    """`old` stands exactly once in `file`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`catcher`: a simulation, a drill, or what pytest is to run. `also`: more edits, where several
    protections stand behind each other, so that without one of them nothing would go wrong.
    """

    name: str
    file: str
    old: str
    new: str
    catcher: str
    also: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """In the order in which they are made."""
        return (Edit(self.file, self.old, self.new), *self.also)

    def is_named(self, name: str) -> bool:
        """Whether this is a part of its name, or all of its catcher."""
        return name in self.name or name == self.catcher


def read_mutants(text: str) -> list[Mutant]:
    """Lines behind `##` say what the faults below them have in common."""
    mutants: list[Mutant] = []
    for fault in f"\n{text}".split("\n# ")[1:]:
        name, *lines = fault.splitlines()
        edits: list[Edit] = []
        catchers = []
        for line in lines:
            if line.startswith("##"):
                break
            if line[:1] not in {"-", "+", " "}:
                file, _, catcher = line.partition(": ")
                catchers.append(catcher)
                edits.append(Edit(file, "", ""))
                continue
            file, old, new = edits[-1]
            kept = f"{line[1:]}\n"
            edits[-1] = Edit(
                file,
                old if line[0] == "+" else old + kept,
                new if line[0] == "-" else new + kept,
            )
        mutants.append(Mutant(name, *edits[0], catchers[0], tuple(edits[1:])))
    return mutants


MUTANTS = tuple(
    mutant
    for path in sorted(FAULTS.glob("*.txt"))
    for mutant in read_mutants(path.read_text(encoding="utf-8"))
)
