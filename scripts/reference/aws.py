"""The calls to AWS, and the IAM policies that they need."""

from __future__ import annotations

import ast
import json
from dataclasses import fields
from pathlib import Path

from kinesis_spout.service.record_putter import REQUEST_BYTES, REQUEST_RECORDS
from kinesis_spout.spout import SpoutConfig
from scripts.reference.markdown import block, code, page, table
from scripts.reference.words import CALLS, POLICIES, Call, Policy
from spark_job.options import OPTIONS

SERVICE = Path(__file__).resolve().parents[2] / "kinesis_spout" / "service"
STREAM_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
CONSUMER_ARN = f"{STREAM_ARN}/consumer/*"
# The operations whose resource is a consumer (Service Authorization Reference).
ON_CONSUMERS = frozenset(
    {"describe_stream_consumer", "deregister_stream_consumer", "subscribe_to_shard"}
)
KEY_ARN = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
_SENDERS = frozenset({"call", "send"})


def operations(folder: Path = SERVICE) -> set[str]:
    """The operations that the code names where it calls AWS, as botocore spells them."""
    found: set[str] = set()
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == "AssumeRoleCredentialFetcher":
                found.add("assume_role")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                if node.func.attr in _SENDERS and isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found


def aws_page() -> str:
    return page(
        "## Calls",
        *(_call(operation, call) for operation, call in CALLS.items()),
        "## IAM policies",
        *(_policy(policy) for policy in POLICIES),
        "### Assume a role",
        "This policy is for the identity of a process that uses `roleArn`. The assumed role "
        "itself needs the policy of its use.",
        block(
            "json",
            _document(
                [_statement(["sts:AssumeRole"], "arn:aws:iam::123456789012:role/orders-etl")]
            ),
        ),
    )


def document_of(policy: Policy) -> str:
    """The policy as JSON, for a stream that is encrypted with a key of one's own."""
    on_consumers = [name for name in policy.operations if name in ON_CONSUMERS]
    on_stream = [name for name in policy.operations if name not in on_consumers]
    statements = [
        _statement([CALLS[name].action for name in names], arn)
        for names, arn in ((on_stream, STREAM_ARN), (on_consumers, CONSUMER_ARN))
        if names
    ]
    if policy.kms:
        statements.append(_statement([policy.kms], KEY_ARN))
    return _document(statements)


def _call(operation: str, call: Call) -> str:
    title = _title(operation)
    known = {**_defaults(), "request": f"{title} request"}
    return page(
        f"### {title}",
        f"IAM action: {code(call.action)}.",
        table(
            ("caller", "requests"),
            [(who, rate.format(**known)) for who, rate in call.callers.items()],
        ),
    )


def _policy(policy: Policy) -> str:
    return page(
        f"### {policy.title}",
        f"This policy is for {policy.needed_by}.",
        block("json", document_of(policy)),
        f"Omit the permission `{policy.kms}` unless the stream is encrypted with a KMS key "
        "of your own."
        if policy.kms
        else "",
    )


def _document(statements: list[dict[str, object]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=2)


def _statement(actions: list[str], resource: str) -> dict[str, object]:
    return {"Effect": "Allow", "Action": actions, "Resource": resource}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _title(operation: str) -> str:
    return "".join(word.capitalize() for word in operation.split("_"))


def _defaults() -> dict[str, object]:
    """What a rate may name: an option's default, one of the spout, and the size of a request."""
    return {
        **{option.name: option.default for option in OPTIONS.values()},
        **{one.name: f"{one.default:g}" for one in fields(SpoutConfig) if _is_number(one.default)},
        "request_records": REQUEST_RECORDS,
        "request_mib": REQUEST_BYTES // 2**20,
    }
