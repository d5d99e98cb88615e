"""Glue Schema Registry, as `scheme.GlueScheme` asks it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import botocore.exceptions as vendor

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import AwsConfig
from kinesis_spout.errors import KinesisError
from kinesis_spout.service.botocore_session import code_of, local_error, new_client
from kinesis_spout.service.faults import REFUSED_CREDENTIALS, meaning_of
from scheme.errors import SchemeDefinitionError, SchemeUnavailableError
from scheme.glue_scheme import SchemaVersion

_NOT_FOUND = "EntityNotFoundException"
_MAX_VERSIONS = 1024
_MAX_REGISTRIES = 64
# A version is registered before the first record is written by it, but the registry answers from
# several places, which may know it some seconds later.
_UNKNOWN_FOR_S = 30.0
_DENIED = "allow glue:GetSchemaVersion"
_AGAIN = (
    "check the network, and the endpoint and the region of the Glue Schema Registry; the "
    "records are redelivered"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueRegistry:
    """Schema versions of the account and the region of `aws`, as a `scheme.SchemaRegistry`.

    - `aws`: credentials and region, as those of the job. Its `endpoint_url` is that of Kinesis.
    - `endpoint_url`: of Glue, for a VPC endpoint or an emulator.
    - `registry_name`: schemas of other registries of the account count as unknown.

    It is a value: each process looks a version up once, and keeps the last 1,024. A call is retried
    by botocore, with backoff, `attempts` times. Methods block on the network and may be called
    from several threads.
    """

    aws: AwsConfig = field(default_factory=AwsConfig)
    endpoint_url: str | None = None
    registry_name: str | None = None
    attempts: int = 5

    def schema_version(self, version_id: str) -> SchemaVersion | None:
        """See `scheme.SchemaRegistry`."""
        return _lookups(os.getpid(), self).version(version_id)

    def latest(self, schema_name: str) -> SchemaVersion:
        """The latest version of a schema by its name. Raises `SchemeDefinitionError` if there is
        none, and `SchemeUnavailableError` if the registry does not answer.
        """
        schema_id = {
            "SchemaName": schema_name,
            "RegistryName": self.registry_name or "default-registry",
        }
        found = _lookups(os.getpid(), self).call(
            SchemaId=schema_id, SchemaVersionNumber={"LatestVersion": True}
        )
        if found is None:
            raise SchemeDefinitionError(
                f"the Glue registry {schema_id['RegistryName']} has no schema {schema_name}",
                "check the names of the registry and the schema, the region and the account",
            )
        return found


class _Lookups:
    """What one process has looked up in one registry. Thread-safe."""

    def __init__(self, registry: GlueRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._client: Any = None
        # By id, the newest last: what was found, else until when nothing is looked up again.
        self._known: dict[str, SchemaVersion | float] = {}

    def version(self, version_id: str) -> SchemaVersion | None:
        known = self._known.get(version_id)
        if isinstance(known, SchemaVersion):
            return known
        # One lookup at a time: threads that need the same version wait for it.
        with self._lock:
            known = self._known.get(version_id, 0.0)
            if isinstance(known, SchemaVersion):
                return known
            now_s = self._clock.monotonic_s()
            if now_s < known:
                return None
            found = self.call(SchemaVersionId=version_id)
            self._known[version_id] = found or now_s + _UNKNOWN_FOR_S
            if len(self._known) > _MAX_VERSIONS:
                del self._known[next(iter(self._known))]
            return found

    def call(self, **arguments: Any) -> SchemaVersion | None:
        try:
            answer = self._vendor_client().get_schema_version(**arguments)
            # Of a page that is not Glue's, botocore may make an answer without fields.
            arn = answer["SchemaArn"]
            found = SchemaVersion(answer["DataFormat"], answer["SchemaDefinition"])
        except vendor.ClientError as exc:
            code = code_of(exc)
            if code == _NOT_FOUND:
                return None
            remedy = _DENIED if code.startswith("AccessDenied") else _AGAIN
            if code in REFUSED_CREDENTIALS:
                _, remedy = meaning_of(code, 400)
            raise SchemeUnavailableError(
                f"{self._where} refused to return a schema version ({code})", remedy
            ) from exc
        except KinesisError as exc:
            raise SchemeUnavailableError(exc.message, exc.remedy) from exc
        except MemoryError:
            raise
        except Exception as exc:  # whatever it is, it is not the record's fault
            error = local_error(exc, self._registry.aws, self._where)
            raise SchemeUnavailableError(error.message, error.remedy or _AGAIN) from exc
        name = self._registry.registry_name
        return found if name is None or f":schema/{name}/" in arn else None

    @property
    def _where(self) -> str:
        place = self._registry.endpoint_url or self._registry.aws.region
        return "Glue Schema Registry" + (f" at {place}" if place else "")

    def _vendor_client(self) -> Any:
        """Creating it reads files, and calls STS when a role is to be assumed."""
        if self._client is None:
            of, aws = self._registry, self._registry.aws
            self._client = new_client(
                aws,
                "glue",
                region=aws.region,
                endpoint_url=of.endpoint_url,
                attempts=of.attempts,
                read_timeout=15,
            )
        return self._client


@lru_cache(maxsize=_MAX_REGISTRIES)
def _lookups(_pid: int, registry: GlueRegistry) -> _Lookups:
    """Those of this process: a child that was forked must not use its parent's connections."""
    return _Lookups(registry, SystemClock())
