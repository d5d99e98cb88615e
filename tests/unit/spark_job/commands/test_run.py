"""The options of `run`, the input that it refuses before Spark starts, and the figures it shows."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from kinesis_spout.errors import ConfigError
from spark_job.commands.run import Progress, progress_line, refuse_hidden_files, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from typer.testing import Result


ALL = "--stream s --application etl --zookeeper zk:2181"


def invoked(monkeypatch: pytest.MonkeyPatch, arguments: str) -> Result:
    monkeypatch.setenv("COLUMNS", "200")
    command = typer.Typer(pretty_exceptions_enable=False)
    command.command()(run)
    return CliRunner().invoke(command, arguments.split())


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("--sink parquet", 2, "needs a directory"),
        ("--sink orc", 2, "orc"),
        ("--available-now --trigger 1s", 2, "omit --trigger"),
        ("--option secret-without-key", 2, "must have the form KEY=VALUE"),
        ("--application etl --zookeeper zk:2181", 1, "option --stream is missing"),
        (f"{ALL} --option streamname=a/b", 1, "option streamName: 'a/b' is not a"),
        (f"{ALL} --from LATTEST", 1, "option --from: 'LATTEST'"),
        (f"{ALL} --option maxRecordPerShard=1", 1, "did you mean maxRecordsPerShard"),
        (f"{ALL} --process nope:f", 1, "No module named 'nope'"),
        (f"{ALL} --log-file /dev/null/log", 1, "choose another file with --log-file"),
    ],
)
def test_bad_input_is_refused_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = invoked(monkeypatch, arguments)
    assert ended.exit_code == code
    assert text in ended.output
    assert "secret-without-key" not in ended.output
    assert "Traceback" not in ended.output
    assert code == 2 or ended.output.count("\n") == 1


def test_an_option_without_effect_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = f"{ALL} --option probemaxshards=5 --log-file /dev/null/log"
    first, second = invoked(monkeypatch, arguments).output.splitlines()
    assert first.startswith("note: option probeMaxShards no longer has an effect: ")
    assert "choose another file with --log-file" in second


@pytest.mark.spark
def test_a_directory_whose_files_spark_would_not_read_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A streaming sink lists its files, and readers see no other ones."""
    new, listed, batches = (f"{tmp_path}/{name}" for name in ("new{", "listed", "batches"))
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    query = rows.writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint")
    query.trigger(availableNow=True).start(listed).awaitTermination()
    spark.range(2).write.parquet(f"{batches}/batch=0123abcd-0")
    for path, in_batches in ((new, True), (new, False), (listed, False), (batches, True)):
        refuse_hidden_files(spark, path, in_batches=in_batches)
    with pytest.raises(ConfigError, match="of a run without --process"):
        refuse_hidden_files(spark, listed, in_batches=True)
    with pytest.raises(ConfigError, match="of a run with --process"):
        refuse_hidden_files(spark, batches, in_batches=False)
    before = spark.read.parquet(listed).count()
    spark.range(2).write.parquet(f"{listed}/batch=0123abcd-0")
    assert spark.read.parquet(listed).count() == before


# progress -----------------------------------------------------------------------------------------
def own_report(**changes: Any) -> str:
    """The source's own report, as Spark passes it on."""
    none = {
        "format": 1,
        "application": "etl",
        "stream": "orders",
        "retentionMs": None,
        "readableShards": 1,
        "dataLosses": 0,
        "emitted": 0,
        "retried": 0,
        "acked": 0,
        "failed": 0,
        "deadLettered": 3,
        "dropped": 0,
        "oldestUnresolvedMs": 0,
        "outage": False,
        "shards": {},
    }
    return json.dumps(none | changes)


FIGURES = own_report(lagMs=90_000, unresolved=1_200, oldestUnresolvedMs=61_000, outage=True)


def report(batch: int, rows: int, figures: str | None) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "sources": [{"latestOffset": figures}],
    }


def test_batches_add_up_with_the_sources_own_report_and_only_new_figures_are_printed() -> None:
    """A repeated report counts once. Beside one that cannot be read, the last one stays."""
    shown = io.StringIO()
    progress = Progress()
    with progress_line(Console(file=shown, width=200)) as show:
        for batch, rows, figures in (
            (0, 10, FIGURES),
            (0, 10, FIGURES),
            (1, 5, "soon"),
            (1, 0, own_report(lagMs=0, unresolved=7)),
            (1, 0, own_report(lagMs=0, unresolved=7, emitted=2)),
        ):
            progress = progress.after(report(batch, rows, figures))
            show(progress)
    assert shown.getvalue().splitlines() == [
        (
            "1 batch  10 rows  20 rows/s  lag 90 s  1,200 unresolved (oldest 61 s)  3 "
            "dead-lettered  most records fail, so the job reads no new records until retries "
            "succeed"
        ),
        (
            "2 batches  15 rows  10 rows/s  lag 90 s  1,200 unresolved (oldest 61 s)  3 "
            "dead-lettered  most records fail, so the job reads no new records until retries "
            "succeed"
        ),
        "2 batches  15 rows  10 rows/s  lag 0 ms  7 unresolved  3 dead-lettered",
    ]
