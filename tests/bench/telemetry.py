"""What watching costs: a fully resident decode, watched by the live dashboard and a metrics file
against unwatched. Stretches of tokens are decoded by one engine, watched and unwatched in turn;
`ratio` is the median over pairs of neighbours, watched over unwatched; the goal is at most 1.02.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.sequence import Sequence
from engine.telemetry import Telemetry
from kvcli.dashboard import Dashboard
from kvcli.metrics import MetricsFile
from kvcli.options import RunOptions
from kvcli.output import Output
from tests.bench.harness import default_model, real_text, report


class Screen(io.StringIO):
    """A terminal that nobody looks at."""

    def isatty(self) -> bool:
        return True


def stretch(
    engine: Engine, sequence: Sequence, num_decoded: int, watch: Callable[[ExitStack], None]
) -> float:
    """Decode so many tokens more; milliseconds a token."""
    with ExitStack() as stack:
        watch(stack)
        started = time.perf_counter()
        for _ in range(num_decoded):
            sequence.token_ids.append(100)
            engine.compute(sequence)
        return 1e3 * (time.perf_counter() - started) / num_decoded


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048, help="of the past")
    parser.add_argument("--decoded", type=int, default=48, help="a stretch")
    parser.add_argument("--pairs", type=int, default=15)
    choices = parser.parse_args()
    model, telemetry, options = default_model(), Telemetry(), RunOptions()
    output = Output(options, io.StringIO(), Screen())
    most = choices.tokens + 2 * (choices.pairs + 1) * choices.decoded
    engine = Engine(model, EngineConfig(ram_bytes=4 << 30), telemetry, num_tokens=most)
    sequence = engine.new_sequence()
    sequence.token_ids.extend(real_text(model, choices.tokens))
    engine.compute(sequence)

    def watched(stack: ExitStack) -> None:
        stack.enter_context(MetricsFile(Path(os.devnull), telemetry, output))
        stack.enter_context(Dashboard(telemetry, options, output, model.name))

    ways = {"unwatched": lambda _: None, "dashboard and metrics": watched}
    seen: dict[str, list[float]] = {name: [] for name in ways}
    with patch.dict(os.environ, {"TERM": "xterm-256color"}):
        for watch in ways.values():
            stretch(engine, sequence, choices.decoded, watch)
        for number in range(choices.pairs):
            names = list(ways) if number % 2 else list(ways)[::-1]
            for name in names:
                seen[name].append(stretch(engine, sequence, choices.decoded, ways[name]))
    engine.close()
    rows = {name: {"ms per token": statistics.median(each)} for name, each in seen.items()}
    plain, with_all = seen.values()
    ratios = [after / before for before, after in zip(plain, with_all, strict=True)]
    rows["dashboard and metrics"]["ratio"] = statistics.median(ratios)
    report(
        "what watching costs", rows, tokens=choices.tokens, decoded=choices.decoded,
        pairs=choices.pairs, ratios=f"{min(ratios):.3f} to {max(ratios):.3f}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
