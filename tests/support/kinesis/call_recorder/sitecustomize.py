# no package: its folder is put on the path
"""Writes each call to AWS to a file, from each Python process that has this folder on its path:
also those of Spark and of commands.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest

_FILE = os.environ.get("RECORDED_CALLS_FILE")


def _keep_stream(params: dict[str, Any], context: dict[str, Any], **_more: object) -> None:
    """A hook of botocore's `before-parameter-build`: what is sent need not be JSON."""
    named = params.get("StreamName") or str(params.get("StreamARN", "")).rpartition("/")[2]
    context["recorded_stream"] = named


def _record(request: AWSRequest, event_name: str, **_more: object) -> None:
    """A hook of botocore's `before-sign.SERVICE.OPERATION`: all requests pass it, also one that
    botocore does not send. One short append a call, so that processes may share the file.
    """
    action = ":".join(event_name.split(".")[1:])
    opened = os.open(str(_FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(opened, f"{action} {request.context.get('recorded_stream', '')}\n".encode())
    os.close(opened)


if _FILE is not None:
    from botocore.session import Session

    _plain = Session.__init__

    def _recording(self: Session, *arguments: Any, **named: Any) -> None:
        _plain(self, *arguments, **named)
        self.register("before-parameter-build", _keep_stream)
        self.register("before-sign", _record)

    Session.__init__ = _recording
