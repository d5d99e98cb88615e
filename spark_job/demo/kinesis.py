"""The demo's client of its local Kinesis: starts the server, creates the stream, puts records.

Speaks plain HTTP instead of using the AWS client: nothing here may reach a real account, whatever
credentials the environment holds. The wire format is JSON 1.1 of the Kinesis API reference.
"""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.programs.installation import how_to_install
from kinesis_spout.programs.modules import clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

REGION = "us-east-1"
ACCESS_KEY_ID = "demo"
SECRET_ACCESS_KEY = "demo"  # noqa: S105 - the local server takes anything
PUT_RECORDS_LIMIT = 500
_AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY_ID}/20130101/{REGION}/kinesis/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


@dataclass(frozen=True, slots=True)
class Put:
    """A record to put."""

    partition_key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ShardPuts:
    """The records put to one shard, from the answers: their count and the last sequence number."""

    count: int
    last_sequence_number: str


class DemoKinesis:
    """A running local Kinesis server. `start` blocks until it listens.

    Use it in a with block, or call `stop`.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.endpoint_url = f"http://127.0.0.1:{port}"

    @classmethod
    def start(cls, log_file: Path) -> DemoKinesis:
        """Start the server with its output in `log_file`. Raises `CliError` when it fails."""
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "spark_job.demo.kinesis_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=clean_environment(),
                start_new_session=True,  # Ctrl-C reaches only the demo, which ends the server last
            )
        try:
            line = process.stdout.readline() if process.stdout else b""
        except BaseException:
            _end(process)
            raise
        if not line.strip().isdigit():
            _end(process)
            raise CliError(
                "the local Kinesis (moto) did not start",
                how_to_install("local"),
                log_file=log_file,
            )
        return cls(process, int(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the server. Idempotent."""
        self._connection.close()
        _end(self._process)

    def create_stream(self, name: str, shard_count: int) -> None:
        self._call("CreateStream", {"StreamName": name, "ShardCount": shard_count})

    def put_all(
        self, stream: str, records: Sequence[Put], on_progress: Callable[[int], None]
    ) -> dict[str, ShardPuts]:
        """Put the records in order, 500 a call, and return the count and last sequence number of
        each shard.

        Calls `on_progress` with the number put so far. Blocks until all are put. Raises `CliError`.
        """
        shards: dict[str, ShardPuts] = {}
        for start in range(0, len(records), PUT_RECORDS_LIMIT):
            chunk = records[start : start + PUT_RECORDS_LIMIT]
            entries = [
                {"Data": base64.b64encode(put.data).decode(), "PartitionKey": put.partition_key}
                for put in chunk
            ]
            answer = self._call("PutRecords", {"StreamName": stream, "Records": entries})
            if answer.get("FailedRecordCount"):
                raise CliError(
                    f"the local Kinesis refused {answer['FailedRecordCount']} of {len(chunk)} "
                    "records",
                    "run the demo again",
                )
            for entry in answer["Records"]:
                before = shards.get(entry["ShardId"])
                shards[entry["ShardId"]] = ShardPuts(
                    (before.count if before else 0) + 1, entry["SequenceNumber"]
                )
            on_progress(start + len(chunk))
        return dict(sorted(shards.items()))

    def _call(self, operation: str, body: Mapping[str, object]) -> Any:
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"Kinesis_20131202.{operation}",
            "Authorization": _AUTHORIZATION,
        }
        try:
            self._connection.request("POST", "/", json.dumps(body), headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as exc:
            raise CliError(
                f"the local Kinesis does not answer {operation} ({exc})", "run the demo again"
            ) from exc
        if response.status != http.HTTPStatus.OK:
            raise CliError(
                f"the local Kinesis answers {operation} with HTTP {response.status}: {text[:200]!r}"
            )
        return json.loads(text or b"{}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server by closing its stdin, or kill it. No other process uses it."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)
    if process.stdout:
        process.stdout.close()
