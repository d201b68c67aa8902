"""The limits that a child process puts on itself before it opens what may be hostile.

Imports nothing of this package, so that a child starts fast.
"""

from __future__ import annotations

import time


def limit_resources(memory_bytes: int, cpu_seconds: int) -> None:
    """Limit address space for good, and processor time to so much more than was used until now."""
    try:
        import resource  # absent on Windows, where the parent's clock is the only limit
    except ImportError:
        return
    for what, limit, is_final in (
        (resource.RLIMIT_AS, memory_bytes, True),
        (resource.RLIMIT_CPU, int(time.process_time()) + 1 + cpu_seconds, False),
        (resource.RLIMIT_CORE, 0, True),
    ):
        _, hard = resource.getrlimit(what)
        ceiling = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (ceiling, ceiling if is_final else hard))
