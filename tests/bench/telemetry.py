"""What watching costs: a fully resident decode, watched by the live dashboard and a metrics file
against unwatched. `ratio` is watched over unwatched, per token; the goal is at most 1.02.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.telemetry import Telemetry
from kvcli.dashboard import Dashboard
from kvcli.metrics import MetricsFile
from kvcli.options import RunOptions
from kvcli.output import Output
from tests.bench.harness import alternate, default_model, real_text, report


class Screen(io.StringIO):
    """A terminal that nobody looks at."""

    def isatty(self) -> bool:
        return True


def decode(
    model: LoadedModel, ids: list[int], num_decoded: int, *, is_watched: bool
) -> Callable[[], dict[str, float]]:
    """One prefill, then tokens one by one; only those are timed."""

    def once() -> dict[str, float]:
        telemetry = Telemetry()
        engine = Engine(
            model, EngineConfig(ram_bytes=4 << 30), telemetry, num_tokens=len(ids) + num_decoded
        )
        sequence = engine.new_sequence()
        sequence.token_ids.extend(ids)
        logits = engine.compute(sequence)
        options = RunOptions()
        output = Output(options, io.StringIO(), Screen())
        with ExitStack() as stack:
            if is_watched:
                stack.enter_context(MetricsFile(Path(os.devnull), telemetry, output))
                stack.enter_context(Dashboard(telemetry, options, output, model.name))
            started = time.perf_counter()
            for _ in range(num_decoded):
                sequence.token_ids.append(int(logits.argmax()))
                logits = engine.compute(sequence)
            seconds = time.perf_counter() - started
        engine.close()
        return {"ms per token": 1e3 * seconds / num_decoded}

    return once


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4096, help="of the past")
    parser.add_argument("--decoded", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    model = default_model()
    ids = real_text(model, options.tokens)
    with patch.dict(os.environ, {"TERM": "xterm-256color"}):
        rows = alternate(
            {
                "unwatched": decode(model, ids, options.decoded, is_watched=False),
                "dashboard and metrics": decode(model, ids, options.decoded, is_watched=True),
            },
            options.repeats,
        )
    plain = rows["unwatched"]["ms per token"]
    for row in rows.values():
        row["ratio"] = row["ms per token"] / plain
    report("what watching costs", rows, tokens=options.tokens, decoded=options.decoded)


if __name__ == "__main__":
    main()
