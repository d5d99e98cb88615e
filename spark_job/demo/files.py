"""Reading back what the demo's job wrote, with pyarrow: Spark has no say in the verdict on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from kinesis_spout.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


def read_rows(
    files: Iterable[Path], columns: Sequence[str], what: str
) -> Iterator[dict[str, object]]:
    """The rows of parquet files. Raises `CliError` naming the file that cannot be read as `what` it
    should be.
    """
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                yield from file.read(columns=list(columns)).to_pylist()
        except (OSError, ValueError, KeyError) as exc:
            raise CliError(
                f"{path} cannot be read as {what}: {' '.join(str(exc).split())}"
            ) from exc
