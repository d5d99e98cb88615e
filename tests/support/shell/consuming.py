"""`kinesis-spout consume` and `produce` against a served FakeKinesis."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.shell.command_line import call_cli, running_cli

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.support.kinesis.services import ServedFake

LIMIT_S = 60.0
COMMANDS = {  # how a command treats each record
    "acks": "answer(record, ok=True)",
    "acks in pairs": "held.append(record)\n    "
    "while len(held) > 1: answer(held.pop(), ok=True), answer(held.pop(), ok=True)",
    "fails the sevens": "answer(record, ok=record['data'][-1] != '7', reason='a seven')",
    "refuses the sevens": "answer(record, ok=record['data'][-1] != '7', "
    "reason='a seven', retry=False)",
    "dies at the third": "count += 1\n    if count == 3: sys.exit(3)\n    answer(record, ok=True)",
}
_PROGRAM = """
import json, sys
held, count = [], 0
def answer(record, **said):
    print(json.dumps({{"id": record["id"], **said}}), flush=True)
for line in sys.stdin:
    record = json.loads(line)
    with open({log!r}, "a") as log:
        log.write(line)
    {body}
print("the input has ended", file=sys.stderr)
"""


def command_that(does: str, log: Path) -> str:
    """A command for --exec. It also writes each line that it gets to the log."""
    program = _PROGRAM.format(log=str(log), body=COMMANDS[does])
    return shlex.join([sys.executable, "-c", program])


def connection(fake: ServedFake) -> dict[str, str]:
    """The environment variables that name the service to a command."""
    return {
        "AWS_ENDPOINT_URL_KINESIS": fake.endpoint_url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


def run(fake: ServedFake, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run the command to its end, within this process."""
    return call_cli(*arguments, cwd=Path.cwd(), stdin=stdin, **connection(fake))


def running(
    fake: ServedFake, *arguments: str, **pipes: Any
) -> AbstractContextManager[subprocess.Popen[str]]:
    """The command with pipes."""
    all_pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | pipes
    return running_cli(*arguments, variables=connection(fake), **all_pipes)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def data_of(text: str) -> list[str]:
    return [line["data"] for line in lines_of(text)]
