"""The service's error codes: for each the error class of ours, and what a user can do about it.

The codes are from the Kinesis API reference (errors of GetRecords, GetShardIterator, ListShards,
DescribeStreamSummary, PutRecords), from the errors that all AWS services share, and from STS.
"""

from __future__ import annotations

from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    ExpiredIteratorError,
    KeyThrottledError,
    KinesisError,
    MalformedResponseError,
    RequestRefusedError,
    ServiceUnavailableError,
    StreamNotFoundError,
    SubscriptionInUseError,
    ThrottledError,
)

EXPIRED_LISTING = "ExpiredNextTokenException"

_THROTTLED = "lower the read rate, or move other consumers of the shard to enhanced fan-out"
_KEYS = "check the access key and the secret key"
_KMS = "check the KMS key that the stream is encrypted with"
_POLICY = (
    "allow kinesis:DescribeStreamSummary, kinesis:ListShards, kinesis:GetShardIterator and "
    "kinesis:GetRecords "
    "(and kms:Decrypt if the stream is encrypted), or sts:AssumeRole where a role is configured"
)

_REFUSED = "check the position and the stream"
_KMS_DECRYPT = "allow kms:Decrypt on the key that the stream is encrypted with"
# The advice about the same code when other calls than reads get it.
_WHEN_LISTING = {
    _THROTTLED: (
        "list shards less often, or try again later: the account's DescribeStreamSummary and "
        "ListShards calls are rate-limited"
    ),
}
_WHEN_PUTTING = {
    _THROTTLED: "add shards to the stream, or put fewer records at a time",
    _POLICY: "allow kinesis:PutRecords (and kms:GenerateDataKey if the stream is encrypted)",
    _KMS_DECRYPT: "allow kms:GenerateDataKey on the key that the stream is encrypted with",
    _REFUSED: "check the stream's name and its maximum record size",
}

_IN_USE = "wait until the stream is ACTIVE"
_WHEN_SUBSCRIBING = {
    _THROTTLED: "try again later: SubscribeToShard is rate-limited",
    _POLICY: "allow kinesis:SubscribeToShard on the consumer (and kms:Decrypt if the stream is "
    "encrypted)",
    _IN_USE: (
        "check that no other reader uses this consumer: it can have one subscription per shard, "
        "and the next one at the earliest five seconds after the previous one"
    ),
}
_CONSUMER_LIMIT = (
    "remove a consumer with kinesis-spout consumers remove, or name an existing consumer: a "
    "stream can have a limited number of consumers, and at most five of them in creation"
)
_WHEN_NAMING_CONSUMERS = {
    _THROTTLED: (
        "try again later: the account's calls that describe and list consumers are rate-limited"
    ),
    _POLICY: "allow kinesis:DescribeStreamConsumer, kinesis:ListStreamConsumers, "
    "kinesis:RegisterStreamConsumer and kinesis:DeregisterStreamConsumer, or name a consumer by "
    "its ARN",
    _IN_USE: "wait until the stream and the consumer are ACTIVE",
}

_WHEN_POSITIONING = {
    _REFUSED: (
        "check that the position belongs to this shard of this stream, or move the stored "
        "position with kinesis-spout checkpoint set"
    ),
}
_ADVICE_OF = {
    "GetShardIterator": _WHEN_POSITIONING,
    "SubscribeToShard": _WHEN_SUBSCRIBING,
    "RegisterStreamConsumer": _WHEN_NAMING_CONSUMERS | {_THROTTLED: _CONSUMER_LIMIT},
    "DescribeStreamConsumer": _WHEN_NAMING_CONSUMERS,
    "ListStreamConsumers": _WHEN_NAMING_CONSUMERS,
    "DeregisterStreamConsumer": _WHEN_NAMING_CONSUMERS,
    "PutRecords": _WHEN_PUTTING,
    "ListShards": _WHEN_LISTING,
    "DescribeStreamSummary": _WHEN_LISTING,
}

_MEANINGS: dict[str, tuple[type[KinesisError], str]] = {
    "ProvisionedThroughputExceededException": (ThrottledError, _THROTTLED),
    "LimitExceededException": (ThrottledError, _THROTTLED),
    "KMSThrottlingException": (KeyThrottledError, "raise the account's KMS request quota"),
    "Throttling": (ThrottledError, _THROTTLED),
    "ThrottlingException": (ThrottledError, _THROTTLED),
    "RequestLimitExceeded": (ThrottledError, _THROTTLED),
    "TooManyRequestsException": (ThrottledError, _THROTTLED),
    "InternalFailure": (ServiceUnavailableError, "try again later"),
    "InternalFailureException": (ServiceUnavailableError, "try again later"),
    "InternalServerError": (ServiceUnavailableError, "try again later"),
    "ServiceUnavailable": (ServiceUnavailableError, "try again later"),
    "RequestTimeout": (ServiceUnavailableError, "try again later"),
    "RequestTimeoutException": (ServiceUnavailableError, "try again later"),
    "ResourceInUseException": (ServiceUnavailableError, _IN_USE),
    "AccessDenied": (AccessDeniedError, _POLICY),
    "AccessDeniedException": (AccessDeniedError, _POLICY),
    "NotAuthorized": (AccessDeniedError, _POLICY),
    "KMSAccessDeniedException": (AccessDeniedError, _KMS_DECRYPT),
    "KMSDisabledException": (
        AccessDeniedError,
        "enable the KMS key that the stream is encrypted with",
    ),
    "KMSInvalidStateException": (AccessDeniedError, _KMS),
    "KMSNotFoundException": (AccessDeniedError, _KMS),
    "KMSOptInRequired": (AccessDeniedError, "sign the account up for KMS"),
    "OptInRequired": (CredentialsError, "sign the account up for the region or the service"),
    "UnrecognizedClientException": (CredentialsError, _KEYS),
    "InvalidClientTokenId": (CredentialsError, _KEYS),
    "InvalidAccessKeyId": (CredentialsError, _KEYS),
    "InvalidSignatureException": (CredentialsError, f"{_KEYS}, and this machine's clock"),
    "SignatureDoesNotMatch": (CredentialsError, f"{_KEYS}, and this machine's clock"),
    "IncompleteSignature": (CredentialsError, _KEYS),
    "IncompleteSignatureException": (CredentialsError, _KEYS),
    "MissingAuthenticationToken": (CredentialsError, _KEYS),
    "MissingAuthenticationTokenException": (CredentialsError, _KEYS),
    "ExpiredToken": (CredentialsError, "get new temporary credentials"),
    "ExpiredTokenException": (CredentialsError, "get new temporary credentials"),
    "RequestExpired": (
        CredentialsError,
        "get new temporary credentials, and check this machine's clock",
    ),
    "ResourceNotFoundException": (
        StreamNotFoundError,
        "check the stream's name, the region and the account",
    ),
    "ExpiredIteratorException": (ExpiredIteratorError, "create a new iterator"),
    "InvalidArgumentException": (RequestRefusedError, _REFUSED),
    "ValidationException": (RequestRefusedError, _REFUSED),
}


REFUSED_CREDENTIALS = frozenset(
    code for code, (kind, _advice) in _MEANINGS.items() if kind is CredentialsError
)

# botocore's exceptions by name, so that this table imports no botocore: the error class, the
# message and the remedy. The first name in the exception's ancestry counts. A message quotes only
# text that cannot hold a secret.
_NO_KEYS = (
    CredentialsError,
    "no AWS credentials were found for {where}",
    (
        "give an access key and its secret, a profile, the environment variables "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an instance role (an emulator takes any "
        "pair)"
    ),
)
_NOT_RENEWED = (
    CredentialsError,
    "the AWS credentials for {where} could not be renewed ({kind})",
    "sign in again, or check the source of the credentials",
)
_BAD_FILE = (
    ConfigError,
    "the AWS configuration file on this machine cannot be read ({kind})",
    "correct that file",
)
_NO_ANSWER = (
    ServiceUnavailableError,
    "no answer came from {peer} for {where} ({kind})",
    "check the network and the endpoint, or try again later",
)
_NOT_READABLE = (
    MalformedResponseError,
    "the service's answer for {where} cannot be read ({kind})",
    "check the endpoint",
)
_LOCAL_MEANINGS: dict[str, tuple[type[KinesisError], str, str]] = {
    "NoCredentialsError": _NO_KEYS,
    "NoAuthTokenError": _NO_KEYS,
    "PartialCredentialsError": (
        CredentialsError,
        "the AWS credentials for {where} lack the access key or the secret key",
        "give both of them",
    ),
    "ProfileNotFound": (
        CredentialsError,
        "{profile} is in no AWS configuration file",
        "check its name",
    ),
    "CredentialRetrievalError": _NOT_RENEWED,
    "MetadataRetrievalError": _NOT_RENEWED,
    "TokenRetrievalError": _NOT_RENEWED,
    "SSOError": _NOT_RENEWED,
    "LoginError": _NOT_RENEWED,
    "NoRegionError": (
        ConfigError,
        "the region of {where} is not known",
        "give the region, or set AWS_DEFAULT_REGION",
    ),
    "ConfigParseError": _BAD_FILE,
    "InvalidConfigError": _BAD_FILE,
    "ParamValidationError": (
        RequestRefusedError,
        "a request for {where} is not valid: {text}",
        "",
    ),
    "HTTPClientError": _NO_ANSWER,
    "ConnectionError": _NO_ANSWER,
    "IncompleteReadError": _NO_ANSWER,
    "UnicodeDecodeError": _NOT_READABLE,
    "ResponseParserError": _NOT_READABLE,
    # These three come from botocore's parser, for a body that is JSON but not an object.
    "AttributeError": _NOT_READABLE,
    "TypeError": _NOT_READABLE,
    "LookupError": _NOT_READABLE,
    "Exception": (
        ConfigError,
        "the connection for {where} cannot be set up ({kind}: {text})",
        "check region and endpoint",
    ),
}


def meaning_of_local(kind: type[Exception]) -> tuple[type[KinesisError], str, str]:
    """The error class of an exception of botocore's own; its message, with the placeholders
    {where}, {peer}, {profile}, {kind} and {text}; and its remedy.
    """
    names = (ancestor.__name__ for ancestor in kind.__mro__)
    return next(_LOCAL_MEANINGS[name] for name in names if name in _LOCAL_MEANINGS)


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
        kind, advice = ServiceUnavailableError, "try again later"
    else:
        kind, advice = RequestRefusedError, "look the code up in the Kinesis API reference"
    if operation == "SubscribeToShard" and code == "ResourceInUseException":
        kind = SubscriptionInUseError
    return kind, _ADVICE_OF.get(operation, {}).get(advice, advice)
