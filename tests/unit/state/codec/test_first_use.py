"""The first use of a kind of value by several threads at once."""

from __future__ import annotations

import subprocess
import sys

# Structs of structs, new in each round: only the first use of one is of interest.
PROGRAM = """
import sys
import threading

import msgspec

from state.codec.values import decode

sys.setswitchinterval(1e-6)
DATA = b'{"m5":{"l":{"x":1},"n":2},"m0":{"l":{"x":1}}}'


def kind_of(n):
    leaf = msgspec.defstruct(f"L{n}", [("x", int, 0)])
    inside = [("l", leaf | None, None), ("n", int, 0)]
    inner = [msgspec.defstruct(f"M{n}x{i}", inside) for i in range(6)]
    members = [(f"m{i}", one | None, None) for i, one in enumerate(inner)]
    return msgspec.defstruct(f"O{n}", [*members, ("format", int, 1)])


def use(kind, together, found):
    together.wait()
    found.append(decode(DATA, kind, "/x").m5.n)


for n in range(100):
    kind, together, found = kind_of(n), threading.Barrier(4), []
    threads = [threading.Thread(target=use, args=(kind, together, found)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [2] * 4, found
"""


def test_threads_that_decode_a_new_kind_at_once_do_not_end_the_process() -> None:
    """As the parts of a query of several streams do when it begins. Without the lock it ends with
    SIGSEGV.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
