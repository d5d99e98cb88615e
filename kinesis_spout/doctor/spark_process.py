"""The Spark job that looks at executors: a process of its own, started by name, as Spark is above
this package.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.doctor.checkup import Check
from kinesis_spout.doctor.executors import executor_findings
from kinesis_spout.doctor.finding import Finding, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.doctor.examination import Place

PROGRAM = "spark_job.commands.doctor_job"
SPARK = "Spark"
LIMIT_S = 300.0  # a cluster may take minutes to give it executors


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the job gets on stdin. It holds secrets, so it is in no argument and no file."""

    place: str
    zookeeper: str | None
    master: str
    conf: dict[str, str]
    answer: str

    def __repr__(self) -> str:
        return f"Wanted(master={self.master!r})"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the job leaves: what each executor has seen, or why none has."""

    seen: list[dict[str, Any]] = []
    error: str | None = None


def executor_check(
    place: Place, master: str, conf: Mapping[str, str], *, limit_s: float = LIMIT_S
) -> Check:
    """Starts Spark on the master, and looks from its executors."""
    return Check(
        name=SPARK,
        look=lambda: _look(place, master, conf, limit_s),
        limit_s=limit_s + 10,
        is_remote=False,
    )


def _look(place: Place, master: str, conf: Mapping[str, str], limit_s: float) -> list[Finding]:
    with tempfile.TemporaryDirectory(prefix="kinesis-spout-doctor-") as folder:
        answer, log = Path(folder, "answer.json"), Path(folder, "spark.log")
        wanted = Wanted(
            place=place.to_json(),
            zookeeper=place.zookeeper,
            master=master,
            conf=dict(conf),
            answer=str(answer),
        )
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the job
            )
            try:
                process.communicate(msgspec.json.encode(wanted), timeout=limit_s)
            except subprocess.TimeoutExpired:
                return [
                    failed(
                        SPARK,
                        f"no executor of {master} has answered within {limit_s:g} s; check that "
                        "the cluster has room for one, and that executors can reach this machine",
                        unreachable=True,
                    )
                ]
            finally:
                process.kill()  # its JVM ends with it
                process.wait()
        if not answer.is_file():
            return [failed(SPARK, _died(log))]
        told = msgspec.json.decode(answer.read_bytes(), type=Answer)
    if told.error is not None:
        return [failed(SPARK, told.error)]
    return executor_findings(told.seen)


def _died(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return f"the job that looks at executors ended early: {last[:200]}"
