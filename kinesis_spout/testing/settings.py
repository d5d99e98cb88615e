"""What a FakeKinesis is told once, at its start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeKinesisSettings:
    """How the fake behaves where the service leaves a choice, or where a test wants none of the
    service's delays.

    - `create_ms`, `delete_ms`, `reshard_ms`: how long a stream stays CREATING, DELETING, UPDATING.
      0: the change is done at once.
    - `consumer_ms`: how long a registered consumer stays CREATING, and DELETING.
    - `listing_delay_ms`: how late ListShards shows a new shard (GetRecords names it at once, as a
      child).
    - `limits`: whether a shard's read and write limits hold (see `limits.py`).
    - `control_limits`: whether those of the operations on streams hold (see `control_limits.py`).
      Off, so that a test may ask for a stream's status as often as it likes.
    - `access_keys`: the access keys that the HTTP server accepts; None accepts any.
    - `end_with_last_records`: a closed shard's last page says that it is the end; otherwise an
      empty page after it does. The service may do either.
    - `shard_limit`: open shards of the account.
    - `default_max_record_bytes`: of a stream that is created without a size of its own.
    """

    region: str = "us-east-1"
    account_id: str = "000000000000"
    create_ms: int = 0
    delete_ms: int = 0
    reshard_ms: int = 0
    consumer_ms: int = 0
    listing_delay_ms: int = 0
    limits: bool = False
    control_limits: bool = False
    access_keys: frozenset[str] | None = None
    end_with_last_records: bool = True
    shard_limit: int = 20_000
    default_max_record_bytes: int = 1024 * 1024
