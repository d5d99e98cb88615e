"""Configuration of the connection to Kinesis, parsers of option values, and durations
as texts.

All values are frozen, and checked when they are created. An error names the option as it is spelt
here. A front end with other names passes `option=`, or converts the error with
`ConfigError.respelt`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_REGION = re.compile(r"[a-z]{2,}(?:-[a-z0-9]+)+", re.ASCII)
_STREAM_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
_STREAM_ARN = re.compile(
    r"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}:stream/(?P<name>[a-zA-Z0-9_.-]{1,128})",
    re.ASCII,
)
_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}", re.ASCII)
_ROLE_SESSION = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_AMOUNT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)
_DURATION_MS = {"": 1_000, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SIZE_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_SECRETS = frozenset({"access_key_id", "secret_access_key", "session_token", "role_external_id"})
_MAX_AMOUNT = 2**62


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AwsConfig:
    """AWS region, endpoint and credentials. Missing values come from botocore's own chain
    (environment, files, instance role).

    `endpoint_url` applies only to Kinesis, not to STS, where `role_arn` is assumed. `wire_format`
    is the encoding of GetRecords responses: json, cbor (which needs the extra `cbor`) or auto (cbor
    if the extra is installed and the endpoint supports CBOR, otherwise json). The repr masks
    secrets.
    """

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    role_arn: str | None = None
    role_external_id: str | None = None
    role_session_name: str = "kinesis-spout"
    wire_format: str = "auto"

    def __post_init__(self) -> None:
        check_connection(self._given())

    def _given(self) -> dict[str, object]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def __repr__(self) -> str:
        shown = (
            f"{name}={'***' if name in _SECRETS else value!r}"
            for name, value in self._given().items()
        )
        return f"AwsConfig({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class StreamRef:
    """A stream: its name, and its ARN if it was configured by ARN."""

    name: str
    arn: str | None = None

    @classmethod
    def of(cls, text: str) -> StreamRef:
        """Parse a string that is a stream's name or ARN. Raises `ConfigError`."""
        return cls.parse(arn=text) if text.startswith("arn:") else cls.parse(text)

    @classmethod
    def parse(cls, name: str | None = None, arn: str | None = None) -> StreamRef:
        """Parse exactly one of a stream name and a stream ARN. Raises `ConfigError`."""
        if name is not None and arn is not None:
            raise ConfigError(
                "the options streamName and streamArn are both set",
                "set only one of these two options",
            )
        if arn is not None:
            match = _STREAM_ARN.fullmatch(arn)
            if match is None:
                raise ConfigError.of(
                    "streamArn",
                    f"{arn!r} is not the ARN of a Kinesis stream",
                    remedy="expected arn:aws:kinesis:<region>:<account>:stream/<name>",
                )
            return cls(match["name"], arn)
        if name is None:
            raise ConfigError("the stream's name is missing", "set the stream's name or ARN")
        if not _STREAM_NAME.fullmatch(name):
            raise ConfigError.of(
                "streamName",
                f"{name!r} is not a valid Kinesis stream name",
                remedy="use 1 to 128 letters, digits, underscores, dots and dashes",
            )
        return cls(name)

    @property
    def region(self) -> str | None:
        """The region in the ARN; None without an ARN."""
        match = _STREAM_ARN.fullmatch(self.arn or "")
        return match["region"] if match else None

    def region_or(self, region: str | None) -> str | None:
        """The region to use if `region` is configured. Raises `ConfigError` if the ARN is in
        another region.
        """
        if region is not None and self.region is not None and region != self.region:
            raise ConfigError.of(
                "region",
                f"{region!r} is not the region of the stream {self.arn}",
                remedy="omit option region, because the stream's ARN contains the region",
            )
        return region or self.region

    def __str__(self) -> str:
        return self.arn or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRate:
    """How fast one shard may be polled. The defaults are Kinesis's limits, which all pollers of a
    shard share.
    """

    reads_per_second: float = 5.0
    bytes_per_second: float = 2 * 1024 * 1024

    def __post_init__(self) -> None:
        # The service allows 5; emulators and tests have no limit.
        if not 0 < self.reads_per_second <= 1_000:
            raise ConfigError.of(
                "reads_per_second", f"{self.reads_per_second!r} must be above 0 and at most 1000"
            )
        if not (self.bytes_per_second > 0 and math.isfinite(self.bytes_per_second)):
            raise ConfigError.of("bytes_per_second", f"{self.bytes_per_second!r} must be above 0")

    def own_limits(self) -> tuple[float | None, float | None]:
        """Reads and bytes per second; each is None if it is at or above Kinesis's limit."""
        service = ReadRate()
        reads, size = self.reads_per_second, self.bytes_per_second
        return (
            reads if reads < service.reads_per_second else None,
            size if size < service.bytes_per_second else None,
        )


def parse_duration_ms(text: str, *, option: str) -> int:
    """Milliseconds in a text like `500ms`, `5s`, `2m`, `1h`, or a bare number of seconds. Raises
    `ConfigError`.
    """
    return _amount(
        text,
        _DURATION_MS,
        option,
        f"{text!r} is not a duration",
        "use a number with the unit ms, s, m or h, such as 5s",
    )


def duration(milliseconds: float) -> str:
    """A duration as people read it: `250 ms`, `3.2 s`, `47 s`, `12 min`, `6 h`, `3.2 d`."""
    seconds = milliseconds / 1000
    if seconds < 0.9995:
        return f"{milliseconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{_short(seconds / 3600)} h"
    return f"{_short(seconds / 86_400)} d"


def _short(amount: float) -> str:
    return f"{amount:.1f}".removesuffix(".0")


def parse_size_bytes(text: str, *, option: str) -> int:
    """Bytes in a text like `64MiB`, `10MB`, `1GiB`, or a bare number of bytes. Raises
    `ConfigError`.
    """
    return _amount(
        text,
        _SIZE_BYTES,
        option,
        f"{text!r} is not a size",
        "use a number with the unit KB, MB, GB, KiB, MiB or GiB, such as 64MiB",
    )


def parse_bool(text: str, *, option: str) -> bool:
    """`true` or `false`, in any case. Raises `ConfigError`."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ConfigError.of(option, f"{text!r} must be true or false")


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A question for the known name that `name` is most likely a misspelling of, ignoring case;
    `otherwise` when none is similar.
    """
    by_key = {candidate.lower(): candidate for candidate in known}
    nearest = difflib.get_close_matches(name.lower(), sorted(by_key), n=1)
    return f"did you mean {by_key[nearest[0]]}?" if nearest else otherwise


def check_scheme(option: str, scheme: object) -> None:
    """Raise `ConfigError` for anything but an object with a `decode`; its class has one, too. Asks
    for no other member: these may take long, or need pyspark.
    """
    if isinstance(scheme, type) or not hasattr(scheme, "decode"):
        kind = "a class" if isinstance(scheme, type) else f"of type {type(scheme).__name__}"
        raise ConfigError.about(option, f" is {kind}", "pass a scheme, such as JsonScheme(...)")


def check_function(
    name: str, function: object, *, takes: Sequence[str], may_yield: bool = False
) -> None:
    """Raise `ConfigError`, which begins with `name`, unless a call of `function` with the arguments
    that `takes` names runs it. A call of one with `async` or `yield` only makes an object, and
    whoever calls it would take it for done. `may_yield`: the caller iterates over the result, which
    runs one with `yield` too.
    """
    if not callable(function):
        raise ConfigError(
            f"{name} is of type {type(function).__name__}, which cannot be called",
            "pass a function",
        )
    kinds = [inspect.iscoroutinefunction, inspect.isasyncgenfunction]
    if not may_yield:
        kinds.append(inspect.isgeneratorfunction)
    bodies = (function, type(function).__call__)  # that of an object is in its class
    if any(is_of(body) for is_of in kinds for body in bodies):
        words = "async" if may_yield else "async or yield"
        raise ConfigError(
            f"{name} is a function with {words}, so a call does not run its code",
            f"pass a function without {words}; it may call asyncio.run(...)",
        )
    try:
        # Its own: a decorator may give the function that it wraps further arguments.
        inspect.signature(function, follow_wrapped=False).bind(*takes)
    except ValueError:
        return  # a function in C need not say what it takes
    except TypeError as exc:
        raise ConfigError(
            f"{name} cannot be called with {' and '.join(takes)}: {exc}",
            f"pass a function of {len(takes)} argument{'s' * (len(takes) > 1)}",
        ) from exc


def _amount(text: str, units: dict[str, int], option: str, rule: str, remedy: str) -> int:
    match = _AMOUNT.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ConfigError.of(option, rule, remedy=remedy)
    whole, _, fraction = match[1].partition(".")
    amount = int(whole) * factor + (
        int(fraction) * factor // 10 ** len(fraction) if fraction else 0
    )
    if amount > _MAX_AMOUNT:
        raise ConfigError.of(option, f"{text!r} is too large", remedy="pass a smaller value")
    return amount


def check_connection(given: Mapping[str, Any], spelt: Callable[[str], str] = str) -> None:
    """Raise `ConfigError` for values that are none of an `AwsConfig`. `spelt`: the name of a field
    as the user knows it.
    """

    def refuse(name: str, rule: str, remedy: str = "") -> NoReturn:
        raise ConfigError.of(spelt(name), rule, remedy=remedy)

    for name, value in given.items():
        if not isinstance(value, str) or not value or value != value.strip():
            raise ConfigError.of(
                spelt(name),
                "the value is empty, is not a string, or starts or ends with whitespace",
                remedy="set a value for the option, or omit the option",
            )
    if "endpoint_url" in given:
        _check_endpoint_url(given["endpoint_url"], spelt("endpoint_url"))
    if "region" in given and not _REGION.fullmatch(given["region"]):
        refuse(
            "region",
            f"{given['region']!r} is not the name of an AWS region",
            "use the name of a region, such as eu-central-1",
        )
    key, secret, arn = map(spelt, ("access_key_id", "secret_access_key", "role_arn"))
    has_id, both = "access_key_id" in given, f"set both {key} and {secret}, or neither of them"
    if has_id and "secret_access_key" not in given:
        refuse("secret_access_key", f"the secret access key is missing although {key} is set", both)
    if not has_id and "secret_access_key" in given:
        refuse("access_key_id", f"the access key id is missing although {secret} is set", both)
    if "session_token" in given and not has_id:
        refuse(
            "session_token",
            f"the session token is set without {key} and {secret}",
            f"set {key}, {secret} and {spelt('session_token')}, or none of them",
        )
    if "profile" in given and has_id:
        refuse(
            "profile",
            f"{given['profile']!r} is set, but {key} is set too",
            f"set only {spelt('profile')} or {key}",
        )
    if "role_arn" not in given and "role_external_id" in given:
        remedy = f"set {arn} too, or omit {spelt('role_external_id')}"
        refuse("role_external_id", f"the external id is set without {arn}", remedy)
    if "role_arn" in given:
        if not _ROLE_ARN.fullmatch(given["role_arn"]):
            remedy = "expected arn:aws:iam::<account>:role/<name>"
            refuse("role_arn", f"{given['role_arn']!r} is not the ARN of a role", remedy)
        session = given.get("role_session_name")
        if session is not None and not _ROLE_SESSION.fullmatch(session):
            refuse(
                "role_session_name",
                f"{session!r} must have 2 to 64 letters, digits and characters of _+=,.@-",
            )
    if given.get("wire_format", "auto") not in ("auto", "json", "cbor"):
        refuse("wire_format", f"{given['wire_format']!r} must be auto, json or cbor")


def _check_endpoint_url(url: str, option: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if "@" in url:
        raise ConfigError.of(
            option,
            "the URL must not contain a user name or a password",
            remedy="remove the user name and the password from the URL",
        )
    if not usable or any(character.isspace() for character in url):
        raise ConfigError.of(
            option,
            f"{url!r} is not a valid endpoint URL",
            remedy=(
                "use http:// or https:// with a host and an optional port, such as "
                "http://127.0.0.1:4566"
            ),
        )
