"""Ctrl-C, SIGTERM and SIGHUP: answered at once while nothing is at stake, else between two steps.

Owns the signal handlers while a run is open. Knows nothing of what is being stopped.

The handler only notes a signal or raises: it may run in the middle of anything, also while the very
locks are held that printing needs. Telling the user is left to a thread.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

AT_ONCE_SECONDS = 0.3
"""A stop that comes sooner needs no word before."""


class StopRequested(KeyboardInterrupt):
    """The user asked to stop, and everything is consistent; a bare KeyboardInterrupt may not be."""


class StopRequest:
    """Whether the user asked to stop; a context manager that listens.

    At first a signal interrupts at once. After `defer` the first one waits for the next `check`,
    and only a second one interrupts at once.

    Args:
        on_request: Called in a thread of its own when a signal has waited a moment for `check`.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.received: signal.Signals | None = None
        """The signal that asked, until it is forgotten."""
        self._is_deferred = False
        self._on_request = on_request
        self._before: dict[signal.Signals, object] = {}
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_answered = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="stop-request", daemon=True)

    def __enter__(self) -> Self:
        self._teller.start()
        for number in SIGNALS:
            # what `nohup` or a shell told us to ignore stays ignored
            if signal.getsignal(number) is not signal.SIG_IGN:
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
        self._is_answered.set()
        self._news.put(False)
        self._teller.join()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        waits = self._is_deferred and self.received is None
        self.received = signal.Signals(number)
        if not waits:
            raise KeyboardInterrupt
        self._news.put(True)

    def _tell(self) -> None:
        while self._news.get():
            if not self._is_answered.wait(AT_ONCE_SECONDS):
                self._on_request()

    def defer(self) -> None:
        """From here on there is something to keep: stop at the next `check`."""
        self._is_deferred = True

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While waiting for input: stop at once, also for a signal that has come already.

        Raises:
            StopRequested: The user asked, before or meanwhile.
        """
        self.check()
        before, self._is_deferred = self._is_deferred, False
        try:
            self.check()
            yield
        except KeyboardInterrupt:
            raise StopRequested from None
        finally:
            self._is_deferred = before

    def check(self) -> None:
        """Stop here if asked to.

        Raises:
            StopRequested: The user asked.
        """
        if self.received is not None:
            self._is_answered.set()
            raise StopRequested

    def forget(self) -> None:
        """Go on as if nobody had asked."""
        self._is_answered.clear()
        self.received = None
