"""The files of a demo, and the manifest of what it put, so that its output can be checked later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.kinesis import ShardPuts

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "flights"
APPLICATION = "demo"
ZOOKEEPER_ROOT = "kinesis-spout"
RETRY_LIMIT = 2


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The input of a demo, and how its job ran.

    - `records`: the first rows of the CSV, this many, were put.
    - `shards`: what was put to each shard.
    - `resumed_from`: each shard's checkpoint when the killed job was started again.
    - `killed`: whether the job was killed.
    - `faults`: whether the job's function raised on cancelled flights.
    """

    records: int
    shards: dict[str, ShardPuts]
    resumed_from: dict[str, str | None] = {}
    killed: bool = False
    faults: bool = False
    format: int = 1


class DemoDirectory:
    """The paths of one demo's files. The constructor creates none of them."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.output = self.path / "flights"
        self.dead_letters = self.path / "dead-letters"
        self.spark_checkpoint = self.path / "spark-checkpoint"
        self.zookeeper = self.path / "zookeeper"
        self.carriers = self.path / "carriers.json"
        self.job_log = self.path / "spark.log"
        self.server_log = self.path / "kinesis.log"
        self._manifest = self.path / "manifest.json"

    def create(self) -> None:
        """Create the directory. Raises `CliError` when it is not empty."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            taken = any(self.path.iterdir())
        except OSError as exc:
            raise CliError(
                f"the directory {self.path} cannot be used ({exc.strerror})",
                "give another with --directory",
            ) from exc
        if taken:
            raise CliError(
                f"the directory {self.path} is not empty",
                "give a new one, or add --check to check the demo in it",
            )

    def write_manifest(self, manifest: Manifest) -> None:
        self._manifest.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))

    def read_manifest(self) -> Manifest:
        """The manifest of an earlier demo. Raises `CliError` when there is none."""
        try:
            return msgspec.json.decode(self._manifest.read_bytes(), type=Manifest)
        except FileNotFoundError as exc:
            raise CliError(
                f"{self.path} holds no earlier demo (no {self._manifest.name})",
                f"run one with --directory {self.path}",
            ) from exc
        except (OSError, msgspec.MsgspecError) as exc:
            raise CliError(
                f"{self._manifest} cannot be read ({exc})", "run the demo again in a new directory"
            ) from exc

    def read_carriers(self) -> dict[str, tuple[int, float | None]]:
        """Departures and mean delay by carrier, as Spark computed them."""
        try:
            return msgspec.json.decode(
                self.carriers.read_bytes(), type=dict[str, tuple[int, float | None]]
            )
        except (OSError, msgspec.MsgspecError) as exc:
            raise CliError(
                f"the job did not write {self.carriers.name}",
                "run the demo again",
                log_file=self.job_log,
            ) from exc
