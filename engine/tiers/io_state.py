"""Whether a session file can be read and written still.

Owns the first failure and the deadline of every wait. A write that failed, or a call that was given
up, ends the use of the file: pages believed to lie on disk may not, and a buffer may still be in
the hands of a thread. Every later call says so again.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path

from engine.errors import StorageError


@dataclass(slots=True)
class IOState:
    """What reading and writing of one file share."""

    path: Path
    deadline: float
    """Longest wait for one piece of I/O, seconds."""
    failure: BaseException | None = None

    def check(self) -> None:
        """Raise what ended the use of the file, if anything did."""
        if self.failure is not None:
            raise self.failure

    def wait(self, future: Future[None], what: str) -> None:
        """Wait for a piece of I/O; raises what it raised.

        Args:
            future: The piece.
            what: "read" or "write".

        Raises:
            StorageError: It is not over within the deadline.
        """
        try:
            future.result(timeout=self.deadline)
        except FutureTimeout:
            raise self.give_up(what) from None

    def give_up(self, what: str) -> StorageError:
        """End the use of the file, for the device does not answer."""
        failure = StorageError(
            f"{self.path}: the disk did not answer a {what} within {self.deadline:g} s",
            "Check the disk; the session is safe up to its last checkpoint.",
        )
        self.failure = failure
        return failure
