"""The C heap: giving free memory back to the system before it adds up.

Owns one call to the allocator. Large tensors come and go by the thousand, and small things that
stay are put between them; glibc then cannot use a hole again for a slightly larger tensor, and
takes more from the system instead. Reading 1,372,754 tokens grew by 0.7 kB for each that nothing
else accounts for. `malloc_trim(3)` gives back the whole pages of every hole. Systems without it
have other allocators, which are left alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

TRIM_STEPS = 32
"""Steps between two calls: at that rate some 20 MB in between."""


class HeapTrimmer:
    """Counts steps, and trims the heap when it is time."""

    def __init__(self) -> None:
        self._steps = 0

    def after_step(self) -> None:
        """Count a step."""
        self._steps += 1
        if self._steps % TRIM_STEPS == 0:
            trim_heap()


def trim_heap() -> None:
    """Give back what is free; does nothing where the allocator cannot."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
