"""Load or recompute: is the prefix that is chosen the cheapest, on disks of all speeds?

One session is resumed, exact, and given one more token, from disks that are made as slow as asked
by waiting in every read: everything read, everything computed again, and the prefix chosen by the
speeds of disk and model. Regret is the chosen one's time over the best of the three.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.session import SessionFile
from engine.telemetry import Telemetry
from engine.tiers import transfer
from engine.tiers.cost import Rates, Work, cheapest_split
from kvcli.bring_back import matrix_params
from tests.bench.harness import default_model, real_text, report
from tests.bench.pressure import AMPLE, engine_config, make_session

MB = 10**6


@contextmanager
def disk_of(rate: float) -> Iterator[None]:
    """Reads take as long as they would at `rate` bytes per second, one after the other."""
    real = transfer.read_run

    def read_run(*arguments: object) -> int:
        started = time.perf_counter()
        num_bytes = real(*arguments)  # type: ignore[arg-type]
        time.sleep(max(0.0, num_bytes / rate - (time.perf_counter() - started)))
        return num_bytes

    transfer.read_run = read_run  # type: ignore[assignment]
    try:
        yield
    finally:
        transfer.read_run = real


def seconds_to_token(model: LoadedModel, path: Path, recompute: int) -> float:
    """From opening the file to the logits after one more token."""
    file = SessionFile.open(path, writable=True)
    config = engine_config(AMPLE, io_threads=1)
    engine = Engine(model, config, Telemetry(), num_tokens=len(file.token_ids) + 8, file=file)
    try:
        started = time.perf_counter()
        sequence = engine.resume(recompute=recompute)
        sequence.token_ids.append(100)
        engine.compute(sequence)
        return time.perf_counter() - started
    finally:
        engine.close()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rates", type=float, nargs="+", default=[2, 5, 8, 12, 50, 1000])
    options = parser.parse_args()
    model = default_model()
    geometry = model.geometry
    attention = 4.0 * geometry.num_layers * model.num_heads * geometry.head_dim
    work = Work(2.0 * matrix_params(model), attention)
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        path = Path(folder) / "s.kv"
        make_session(model, path, real_text(model, options.tokens))
        whole = options.tokens // geometry.segment_tokens * geometry.segment_tokens
        flops = work.of(0, whole) / seconds_to_token(model, path, whole)
        for rate in options.rates:
            split = cheapest_split(
                geometry, options.tokens, options.tokens, Rates(rate * MB, flops), work
            )
            with disk_of(rate * MB):
                read, chosen, again = (
                    seconds_to_token(model, path, tokens) for tokens in (0, split.recomputed, whole)
                )
            rows[f"{rate:g} MB/s"] = {
                "chosen tokens": split.recomputed,
                "all read s": read,
                "all computed s": again,
                "chosen s": chosen,
                "expected s": split.seconds,
                "regret": chosen / min(read, chosen, again),
            }
    report(
        f"load or recompute, {options.tokens:,} tokens", rows, gflops=round(flops / 1e9, 1)
    )  # fmt: skip


if __name__ == "__main__":
    main()
