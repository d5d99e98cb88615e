"""The demo's Kinesis: a moto server on a free loopback port that lives as long as its parent holds
its stdin open.

Run as `python -m spark_job.demo.kinesis_server`. The first line on stdout is the port. Ending with the
parent's pipe, it cannot be left behind, whatever kills the parent.
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
        """Requests are no news."""


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
