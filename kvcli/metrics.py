"""`--metrics FILE.jsonl`: every sample of a run as one JSON line.

Owns the file and its thread. A line has the fields of `engine.telemetry.Sample`, sums since the
start of the run: `wall_s`, `task`, `tokens_done`, `tokens_total`, `decoded_tokens`, `total_pages`,
`seconds` by phase (compute, the stalls read, write, commit, decode and lock, idle), `hits` by tier,
`links`, each with `moved_bytes`, `moves` and `busy_s`, and `tiers`, each with `name`,
`capacity_bytes`, `used_bytes`, `pages`, `evictions`, `hot_pages`, `hot_bytes`. `reuse` counts page
reads by how many steps the read before lay back, in powers of two. `read_bytes` and `written_bytes`
are those of the disk tier, as in `links`. `prefetch` counts pages that were brought in before they
were asked for, `issued`, `useful`, `late` and `wasted`, `read_ahead` the same of attention parts
that were streamed ahead of compute; `major_faults` counts waits for mapped memory.
Beside them stand the `accesses` since the line before, see `engine.trace`: which pages were made,
read, weighed and dropped, in order.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.errors import ConfigError
from engine.telemetry import LinkUse, Sample, Telemetry
from kvcli.output import Output

SAMPLE_SECONDS = 0.25


class MetricsFile:
    """Appends samples to a file while it is open, the last one on leaving.

    A disk that fails later costs the samples, never the run: it is said once, as a warning.

    Args:
        path: Where to; an existing file is appended to, a new one is readable by its owner alone.
        telemetry: What to sample.
        output: Where a later failure is told.

    Raises:
        ConfigError: The file cannot be opened.
    """

    def __init__(self, path: Path, telemetry: Telemetry, output: Output) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot write --metrics {path}: {error.strerror}",
                "Give a file in a folder that exists and can be written.",
            ) from error
        self._path = path
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._telemetry = telemetry
        self._telemetry.trace.is_on = True
        self._output = output
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        """Write until stopped; the only thread that touches the file."""
        try:
            with self._file:
                while not self._stop.wait(SAMPLE_SECONDS):
                    self._write()
                self._write()
        except OSError as error:
            self._output.warn(f"--metrics {self._path} ends early: {error.strerror}")

    def _write(self) -> None:
        line = sample_json(self._telemetry.sample())
        line["accesses"] = [access.to_json() for access in self._telemetry.trace.take()]
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def sample_json(sample: Sample) -> dict[str, Any]:
    """A sample as JSON; enums become their values."""
    return {
        "wall_s": round(sample.wall_s, 4),
        "task": sample.task,
        "tokens_done": sample.tokens_done,
        "tokens_total": sample.tokens_total,
        "decoded_tokens": sample.decoded_tokens,
        "total_pages": sample.total_pages,
        "read_bytes": sample.read_bytes,
        "written_bytes": sample.written_bytes,
        "links": {link.value: _link_json(use) for link, use in sample.links.items()},
        "seconds": {phase.value: round(spent, 4) for phase, spent in sample.seconds.items()},
        "hits": {tier.value: pages for tier, pages in sample.hits.items()},
        "reuse": list(sample.reuse),
        "prefetch": dataclasses.asdict(sample.prefetch),
        "read_ahead": dataclasses.asdict(sample.read_ahead),
        "major_faults": sample.major_faults,
        "tiers": [dataclasses.asdict(use) for use in sample.tiers],
    }


def _link_json(use: LinkUse) -> dict[str, Any]:
    return dataclasses.asdict(use) | {"busy_s": round(use.busy_s, 4)}
