"""How many bytes of payload a spout keeps alive."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType
from typing import Any

from kinesis_spout.service.client import KinesisClient
from kinesis_spout.testing import FakeKinesis


def held_bytes(*roots: object, size: int) -> int:
    """The bytes of all payloads that can be reached from these objects, each counted once. Each
    payload has `size` bytes. The service and its client are not looked into.
    """
    found = 0
    seen: set[int] = set()
    stack: list[Any] = list(roots)
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, ModuleType | type | KinesisClient | FakeKinesis):
            continue
        seen.add(id(one))
        if isinstance(one, bytes):
            found += size if len(one) == size else 0
        elif isinstance(one, FunctionType):  # not its globals: all modules are reached from there
            stack += [one.__closure__, one.__defaults__, one.__kwdefaults__]
        else:
            stack += gc.get_referents(one)
    return found
