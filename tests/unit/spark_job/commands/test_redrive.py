"""The options of redrive, and which values are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import typer

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.dead_letter.redrive import Selection
from spark_job.commands.redrive import refuse_missing, selection_of

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def selected(**given: Any) -> Selection:
    names = ("since", "until", "stream", "region")
    defaults: dict[str, Any] = {
        "reasons": (),
        "now_ms": int(NOW.timestamp()) * 1000,
    } | dict.fromkeys(names)
    return selection_of(**(defaults | given))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("-2h", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC)),
        ("2026-01-30T10:00:00.250+02:00", datetime(2026, 1, 30, 8, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_times_are_written_as_in_other_options(text: str, time: datetime) -> None:
    """A time without a zone is UTC. Without options all letters are selected."""
    assert selected() == Selection()
    assert selected(since=text, until=NOW.isoformat()) == Selection(since=time, until=NOW)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"since": "LATEST"}, "--since"),
        ({"until": "yesterday"}, "--until"),
        ({"since": "-1h", "until": "-1h"}, "--until"),
        ({"reasons": ("",)}, "--reason"),
    ],
)
def test_a_bad_selection_is_wrong_usage_of_the_named_option(
    given: dict[str, Any], hint: str
) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        selected(**given)
    assert caught.value.param_hint == hint


def test_only_a_path_that_spark_would_read_from_this_machine_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path without a scheme may be one of another file system, by Spark's configuration."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    typo = f"{tmp_path}/typo"
    for path in (typo, f"file://{typo}"):
        with pytest.raises(CliError, match="typo does not exist"):
            refuse_missing(path, {"spark.ui.enabled": "false"})
    for path in (str(tmp_path), f"{typo}/*", f"hdfs://host{typo}", "s3a://bucket/dead"):
        refuse_missing(path, {})
    refuse_missing(typo, {"spark.hadoop.fs.defaultFS": "hdfs://host"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    refuse_missing(typo, {})
