"""The settings of a FakeKinesis, fixed when it is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeKinesisSettings:
    """How the fake behaves where the service has a choice, or where a test wants no delays.

    - `create_ms`, `delete_ms`, `reshard_ms`: how long a stream stays CREATING, DELETING,
      UPDATING. 0: the change is complete at once.
    - `consumer_ms`: how long a registered consumer stays CREATING, and DELETING.
    - `listing_delay_ms`: delay until ListShards shows a new shard. GetRecords names it at once,
      as a child.
    - `limits`: whether a shard's read and write limits are enforced (see `stream.shard_limits`).
    - `control_limits`: whether the call rates of the control plane are enforced (see
      `service.control_limits`). Off by default, so that a test may poll a stream's status freely.
    - `access_keys`: the access key ids that the HTTP server accepts; None accepts any.
    - `end_with_last_records`: True: the page with a closed shard's last records also reports the
      shard's end. False: an empty page after it does. The service may do either.
    - `event_records`: the maximum number of records in a SubscribeToShard event.
    - `shard_limit`: how many open shards the account may have.
    - `default_max_record_bytes`: maximum record size of a stream that is created without one.
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
    event_records: int = 10_000
    shard_limit: int = 20_000
    default_max_record_bytes: int = 1024 * 1024
