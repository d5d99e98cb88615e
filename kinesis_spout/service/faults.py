"""The service's error codes: for each the error class of ours, and what a user can do about it.

The codes are from the Kinesis API reference (errors of GetRecords, GetShardIterator, ListShards,
DescribeStreamSummary, PutRecords), from the errors that all AWS services share, and from STS.
"""

from __future__ import annotations

import re

from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    ExpiredIteratorError,
    KeyAccessError,
    KeyThrottledError,
    KinesisError,
    MalformedResponseError,
    RequestRefusedError,
    ServiceUnavailableError,
    StreamNotFoundError,
    SubscriptionInUseError,
    ThrottledError,
)

# As IAM and KMS write it.
_DENIED = re.compile(
    r"not authorized to perform: ([a-z]+:[A-Za-z]+)(?: on resource: (arn:[^\s,;]+[^\s,;.]))?"
)

_THROTTLED = "lower readsPerSecond, or move other consumers of the shard to enhanced fan-out"
_POLICY = (
    "allow kinesis:DescribeStreamSummary, kinesis:ListShards, kinesis:GetShardIterator and "
    "kinesis:GetRecords on the stream (and kms:Decrypt if the stream is encrypted), or "
    "sts:AssumeRole if a role is configured"
)

_REFUSED = "check that the requested position belongs to the request's shard and stream"
_KMS_DECRYPT = "allow kms:Decrypt on the stream's KMS key"
_IN_USE = "wait until the stream is ACTIVE"
# The advice about the same code when other calls than reads get it.
_LISTING = {
    _THROTTLED: "raise shardRefreshInterval, or try again later: the account's "
    "DescribeStreamSummary and ListShards requests are rate-limited",
}
_NAMING_CONSUMERS = {
    _THROTTLED: "try again later: the account's requests that describe and list consumers are "
    "rate-limited",
    _POLICY: "allow kinesis:DescribeStreamConsumer, kinesis:ListStreamConsumers, "
    "kinesis:RegisterStreamConsumer and kinesis:DeregisterStreamConsumer, or set the ARN "
    "of an existing consumer",
    _IN_USE: "wait until the stream and the consumer are ACTIVE",
}
_CONSUMER_LIMIT = (
    "start again later, use an existing consumer, or remove a consumer with `kinesis-spout "
    "consumers remove`: Kinesis limits the consumers of a stream, and creates at most five at a "
    "time"
)
_ADVICE_OF = {
    "GetShardIterator": {
        _REFUSED: f"{_REFUSED}; if the position is stored in ZooKeeper, move the shard with "
        "kinesis-spout checkpoint set",
    },
    "SubscribeToShard": {
        _THROTTLED: "try again later: SubscribeToShard requests are rate-limited",
        _POLICY: "allow kinesis:SubscribeToShard on the registered consumer (and kms:Decrypt if "
        "the stream is encrypted)",
        _IN_USE: (
            "check that no other application uses this consumer: a consumer can have one "
            "subscription per shard, and at least five seconds must pass between two "
            "subscriptions"
        ),
    },
    "RegisterStreamConsumer": _NAMING_CONSUMERS | {_THROTTLED: _CONSUMER_LIMIT},
    "DescribeStreamConsumer": _NAMING_CONSUMERS,
    "ListStreamConsumers": _NAMING_CONSUMERS,
    "DeregisterStreamConsumer": _NAMING_CONSUMERS,
    "PutRecords": {
        _THROTTLED: "add shards to the stream, or put fewer records per second",
        _POLICY: "allow kinesis:PutRecords on the stream (and kms:GenerateDataKey if the stream "
        "is encrypted)",
        _KMS_DECRYPT: "allow kms:GenerateDataKey on the stream's KMS key",
        _REFUSED: "check the stream's name and maximum record size",
    },
    "ListShards": _LISTING,
    "DescribeStreamSummary": _LISTING,
}

_AGAIN = "try again later"
_KEYS = "check the AWS access key and the secret access key"
_CLOCK = "the clock of the machine that sent the request"
_KMS_KEY = "the stream's KMS key"
_RENEW = "get new temporary AWS credentials"
_CODES: dict[tuple[type[KinesisError], str], str] = {
    (ThrottledError, _THROTTLED): "ProvisionedThroughputExceededException LimitExceededException "
    "Throttling ThrottlingException RequestLimitExceeded TooManyRequestsException",
    (KeyThrottledError, "raise the account's quota for KMS requests"): "KMSThrottlingException",
    (ServiceUnavailableError, _AGAIN): "InternalFailure InternalFailureException "
    "InternalServerError ServiceUnavailable RequestTimeout RequestTimeoutException",
    (ServiceUnavailableError, _IN_USE): "ResourceInUseException",
    (AccessDeniedError, _POLICY): "AccessDenied AccessDeniedException NotAuthorized",
    (KeyAccessError, _KMS_DECRYPT): "KMSAccessDeniedException",
    (KeyAccessError, f"enable {_KMS_KEY}"): "KMSDisabledException",
    (KeyAccessError, f"check {_KMS_KEY}"): "KMSInvalidStateException KMSNotFoundException",
    (KeyAccessError, "activate KMS in the AWS account"): "KMSOptInRequired",
    (CredentialsError, "activate the region and Kinesis in the AWS account"): "OptInRequired",
    (CredentialsError, _KEYS): "UnrecognizedClientException InvalidClientTokenId "
    "InvalidAccessKeyId IncompleteSignature IncompleteSignatureException "
    "MissingAuthenticationToken MissingAuthenticationTokenException",
    (
        CredentialsError,
        f"{_KEYS}, and {_CLOCK}",
    ): "InvalidSignatureException SignatureDoesNotMatch",
    (CredentialsError, _RENEW): "ExpiredToken ExpiredTokenException",
    (CredentialsError, f"{_RENEW}, and check {_CLOCK}"): "RequestExpired",
    (
        StreamNotFoundError,
        "check the stream's name, the region and the account",
    ): "ResourceNotFoundException",
    (
        ExpiredIteratorError,
        "create a new shard iterator at the same position",
    ): "ExpiredIteratorException",
    (ExpiredIteratorError, "list the shards again"): "ExpiredNextTokenException",
    (RequestRefusedError, _REFUSED): "InvalidArgumentException ValidationException",
}
_MEANINGS = {code: meaning for meaning, codes in _CODES.items() for code in codes.split()}
REFUSED_CREDENTIALS = frozenset(
    code for code, (kind, _) in _MEANINGS.items() if kind is CredentialsError
)

# botocore's exceptions by name, so that this table imports no botocore: the error class, the
# message and the remedy. The first name in the exception's ancestry counts. A message quotes only
# text that cannot hold a secret.
_NO_KEYS = (
    "set an access key and its secret, a profile, the environment variables AWS_ACCESS_KEY_ID "
    "and AWS_SECRET_ACCESS_KEY, or an instance role (an emulator accepts any access key)"
)
_LOCAL: dict[str, tuple[type[KinesisError], str, str]] = {
    "NoCredentialsError NoAuthTokenError": (
        CredentialsError,
        "no AWS credentials were found for {where}",
        _NO_KEYS,
    ),
    "PartialCredentialsError": (
        CredentialsError,
        "the AWS credentials for {where} lack the access key or the secret key",
        "set both the access key and the secret access key",
    ),
    "ProfileNotFound": (
        CredentialsError,
        "no AWS configuration file contains {profile}",
        "check the AWS profile's name",
    ),
    "CredentialRetrievalError MetadataRetrievalError TokenRetrievalError SSOError LoginError": (
        CredentialsError,
        "the AWS credentials for {where} could not be renewed ({kind})",
        "sign in to AWS again, or check the source of the credentials",
    ),
    "NoRegionError": (
        ConfigError,
        "the AWS region of {where} is not known",
        "set the option region, or the environment variable AWS_DEFAULT_REGION",
    ),
    "ConfigParseError InvalidConfigError": (
        ConfigError,
        "cannot read the AWS configuration file on this machine ({kind})",
        "correct the AWS configuration file",
    ),
    "ParamValidationError": (
        RequestRefusedError,
        "a request for {where} is not valid: {text}",
        "",
    ),
    "HTTPClientError ConnectionError IncompleteReadError": (
        ServiceUnavailableError,
        "{peer} did not respond to a request for {where} ({kind})",
        "check the network and the endpoint, or try again later",
    ),
    # The last three come from botocore's parser, for a body that is JSON but not an object.
    "UnicodeDecodeError ResponseParserError AttributeError TypeError LookupError": (
        MalformedResponseError,
        "cannot read the response to a request for {where} ({kind})",
        "check the endpoint's URL",
    ),
    "Exception": (
        ConfigError,
        "cannot set up the connection for {where} ({kind}: {text})",
        "check the region and the endpoint",
    ),
}
_LOCAL_MEANINGS = {name: meaning for names, meaning in _LOCAL.items() for name in names.split()}


def meaning_of_local(kind: type[Exception]) -> tuple[type[KinesisError], str, str]:
    """The error class of an exception of botocore's own; its message, with the placeholders
    {where}, {peer}, {profile}, {kind} and {text}; and its remedy.
    """
    names = (ancestor.__name__ for ancestor in kind.__mro__)
    return next(_LOCAL_MEANINGS[name] for name in names if name in _LOCAL_MEANINGS)


def missing_right(message: str) -> str | None:
    """What to do about a refusal whose message names the missing right; None where it does not."""
    if (denied := _DENIED.search(message)) is None:
        return None
    on = f" on {denied[2]}" if denied[2] else ""
    return f"grant the role or user of these credentials {denied[1]}{on} (IAM)"


def meaning_of(
    code: str, http_status: int, *, operation: str = "GetRecords"
) -> tuple[type[KinesisError], str]:
    """The error class of a code, and what to do about it. The HTTP status decides for an unknown
    code.
    """
    known = _MEANINGS.get(code)
    if known is not None:
        kind, advice = known
    elif http_status == 429:
        kind, advice = ThrottledError, _THROTTLED
    elif http_status >= 500 or http_status == 408:
        kind, advice = ServiceUnavailableError, _AGAIN
    else:
        kind, advice = RequestRefusedError, "look up the error code in the Kinesis API reference"
    if operation == "SubscribeToShard" and code == "ResourceInUseException":
        kind = SubscriptionInUseError
    return kind, _ADVICE_OF.get(operation, {}).get(advice, advice)
