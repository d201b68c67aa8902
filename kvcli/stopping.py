"""Ctrl-C and SIGTERM, answered between two steps, when everything is consistent.

Owns the signal handlers while a run is open. The first signal asks the run to stop at the next
step's end; a second one interrupts at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self


class StopRequest:
    """Whether the user asked to stop; a context manager that listens.

    Args:
        on_request: Called once, from the signal handler, at the first signal.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.requested = False
        self._on_request = on_request
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._on_request()

    def check(self) -> None:
        """Stop here if asked to.

        Raises:
            KeyboardInterrupt: The user asked.
        """
        if self.requested:
            raise KeyboardInterrupt
