"""The demo's Kinesis: a moto server on a free loopback port.

Run as `python -m spark_job.demo.kinesis_server`. The first line on stdout is the port. The server
ends when its stdin closes, so it does not outlive its parent, however the parent is killed.
"""

from __future__ import annotations

import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class QuietHandler(WSGIRequestHandler):
    """Keeps connections open between requests, and logs none of them."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Log nothing."""


def main() -> None:
    server = make_server(
        "127.0.0.1",
        0,
        DomainDispatcherApplication(create_backend_app),
        threaded=True,
        request_handler=QuietHandler,
    )
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()
    server.shutdown()


if __name__ == "__main__":
    main()
