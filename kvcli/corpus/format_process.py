"""The parent's side of the worker for HTML, e-books, office documents and mail.

Owns its life: started for the first such file, kept for the next, and started anew after one that
kills or hangs it. Knows no format: a reader is a name that the worker imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from . import child
from .child import ChildFailed
from .pdf_process import WorkerLimits
from .reading import NotRead, NotThisFormat, Reading, from_message
from .spans import SkipReason

_BYTES_PER_SECOND = 100_000
"""Slower than any reader is on any machine in use."""


class FormatReader:
    """Reads files in a child process, one at a time.

    Args:
        limits: Time and memory for each file.
    """

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: Iterator[bytes] = iter(())
        self._deadline = 0.0

    def read(self, reader: str, path: str) -> Reading:
        """Read one file.

        Args:
            reader: `module:function` of this package, called with the open file.
            path: The file on disk.

        Raises:
            NotRead: It holds no text, is damaged, or took too much.
            NotThisFormat: It is something else, by what it holds.
        """
        try:
            message = self._ask(reader, path)
        except ChildFailed as failure:
            self.close()
            raise NotRead(SkipReason.DAMAGED, f"its reader {failure}") from failure
        if "unlike" in message:
            raise NotThisFormat
        if "refused" in message:
            raise NotRead(SkipReason(message["refused"]), message["detail"])
        return from_message(message)

    def _ask(self, reader: str, path: str) -> dict[str, Any]:
        seconds = self._limits.base_seconds + os.path.getsize(path) / _BYTES_PER_SECOND
        self._deadline = time.monotonic() + seconds
        request = {
            "reader": reader,
            "path": path,
            "memory_bytes": self._limits.memory_bytes,
            "cpu_seconds": int(seconds) + 1,
        }
        if self._process is None:
            self._process = child.start("kvcli.corpus.format_worker")
            self._lines = child.lines(self._process, lambda: self._deadline - time.monotonic())
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(next(self._lines))
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise ChildFailed("crashed") from error
        except StopIteration:
            raise ChildFailed(child.cause_of_death(self._process.returncode)) from None
        return answer

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._process is not None:
            self._process.kill()
            with self._process:
                self._process = None
