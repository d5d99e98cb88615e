"""Compares this project with awslabs' connector, the KCL, boto3 and async-kinesis. Linux only.

    python -m benchmarks.peers [--scenarios NAME,...] [--readers KEY,...] [--rounds N]
    python -m benchmarks.peers --report [--svg FILE] [--json]

Each run appends a line to the results file; runs that it has already are not done again. A peer
that is missing is named. It takes a quarter of an hour a round.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from pathlib import Path

from benchmarks.peers.found_peers import FoundPeers
from benchmarks.peers.plot import svg
from benchmarks.peers.report import as_json, markdown
from benchmarks.peers.results import load
from benchmarks.peers.runner import run_all
from benchmarks.peers.scenarios import SCENARIOS, Scenario

HOME = Path(__file__).resolve().parents[2] / ".tools" / "peers"


def chosen(scenarios: str | None, readers: str | None) -> list[Scenario]:
    """The scenarios with these names, and in them the runs with these keys; all by default."""
    names = _known(scenarios, [one.name for one in SCENARIOS], "--scenarios")
    keys = _known(readers, [run.key for one in SCENARIOS for run in one.runs], "--readers")
    return [
        dataclasses.replace(one, runs=tuple(run for run in one.runs if run.key in keys))
        for one in SCENARIOS
        if one.name in names
    ]


def _known(text: str | None, known: list[str], option: str) -> list[str]:
    asked = known if text is None else text.split(",")
    if unknown := set(asked) - set(known):
        names = ", ".join(dict.fromkeys(known))
        raise SystemExit(f"{option}: there is no {', '.join(unknown)}; there are {names}")
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench-peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scenarios", help="names, with commas (default: all)")
    parser.add_argument("--readers", help="keys of readers, with commas (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="of each scenario (default: 3)")
    parser.add_argument("--home", type=Path, default=HOME, help="where peers are built")
    parser.add_argument("--results", type=Path, help="default: results.jsonl in --home")
    parser.add_argument("--awslabs-jar", type=Path, metavar="PATH")
    parser.add_argument("--awslabs-source", type=Path, metavar="DIR")
    parser.add_argument("--report", action="store_true", help="run nothing, print the results")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write the plot")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the readers are ended too
    results = options.results or options.home / "results.jsonl"
    missing = []
    if not options.report:
        scenarios = chosen(options.scenarios, options.readers)
        peers = FoundPeers(options.home, options.awslabs_jar, options.awslabs_source)
        missing = run_all(scenarios, options.rounds, peers, results)
    found = load(results)
    if not found:
        raise SystemExit(f"there are no results in {results}")
    print(json.dumps(as_json(found)) if options.json else markdown(found))
    if options.svg:
        options.svg.write_text(svg(found), "utf-8")
    for sentence in missing:
        print(sentence, file=sys.stderr)


if __name__ == "__main__":
    main()
