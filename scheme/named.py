"""Schemes by a text, for command lines: `json:id BIGINT`, `gzip+cloudwatch-logs`. Only the scheme
that a text names is loaded.
"""

from __future__ import annotations

from importlib import import_module

import scheme
from scheme.errors import SchemeDefinitionError
from scheme.record_scheme import RecordScheme

_PLAIN = {
    "text": "TextScheme",
    "raw": "RawScheme",
    "cloudwatch-logs": "CloudWatchLogsScheme",
    "dynamodb": "DynamoDbScheme",
}
_WITH_ARGUMENT = {"json": "JsonScheme", "dynamodb": "DynamoDbScheme"}
FORMS = (
    "text, raw, cloudwatch-logs, dynamodb, dynamodb:DDL or json:DDL; one of these names with the "
    "prefix auto+, gzip+, zlib+ or zstd+; or the MODULE:NAME of your own scheme"
)


def scheme_of(text: str) -> RecordScheme:
    """The scheme of a text in one of `FORMS`. Raises `SchemeDefinitionError`."""
    codec, plus, inner = text.partition("+")
    if plus and codec in import_module("scheme.compressed").CODECS:
        return scheme.Compressed(scheme_of(inner), codec)  # type: ignore[arg-type]  # it is one of the codecs
    name, colon, argument = text.partition(":")
    if not colon and name in _PLAIN:
        return _own("scheme", _PLAIN[name])
    if colon and name in _WITH_ARGUMENT:
        found: RecordScheme = getattr(scheme, _WITH_ARGUMENT[name])(argument)
        return found
    if colon and all(part.isidentifier() for part in name.split(".")):
        return _own(name, argument)
    raise SchemeDefinitionError(f"scheme {text!r} is not known", f"use {FORMS}")


def _own(module: str, name: str) -> RecordScheme:
    try:
        found = getattr(import_module(module), name)
        scheme = found() if isinstance(found, type) else found
    except Exception as exc:
        raise SchemeDefinitionError(
            f"scheme {module}:{name} cannot be loaded ({type(exc).__name__}: {exc})",
            "pass the name of an object, or of a class that needs no arguments, in a module "
            "on PYTHONPATH",
        ) from exc
    if not isinstance(scheme, RecordScheme):
        raise SchemeDefinitionError(
            f"the object {module}:{name} is not a scheme (decoder)",
            "implement the methods of scheme.RecordScheme in this object",
        )
    return scheme
