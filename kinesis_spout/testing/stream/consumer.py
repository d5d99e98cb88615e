"""One registered consumer of a stream (enhanced fan-out)."""

from __future__ import annotations


class Consumer:
    """A registered consumer: CREATING, ACTIVE, then DELETING. Times in ms since 1970. One that was
    ACTIVE stays so, also when a test sets the clock back.

    Its ARN ends in the second of its registration. CREATING and DELETING last `phase_ms` each.
    """

    def __init__(self, *, name: str, stream_arn: str, created_ms: int, phase_ms: int) -> None:
        self.name = name
        self.stream_arn = stream_arn
        self.created_ms = created_ms
        self.arn = f"{stream_arn}/consumer/{name}:{created_ms // 1000}"
        self._phase_ms = phase_ms
        self._deregistered_ms: int | None = None
        self._is_created = False

    def status(self, now_ms: int) -> str:
        if self._deregistered_ms is not None:
            return "DELETING"
        self._is_created = self._is_created or now_ms >= self.created_ms + self._phase_ms
        return "ACTIVE" if self._is_created else "CREATING"

    def deregister(self, now_ms: int) -> None:
        if self._deregistered_ms is None:
            self._deregistered_ms = now_ms

    def is_gone(self, now_ms: int) -> bool:
        return (
            self._deregistered_ms is not None and self._deregistered_ms + self._phase_ms <= now_ms
        )
