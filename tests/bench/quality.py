"""What each codec costs in quality: logits and perplexity behind KV that was coded, against raw.

Every text is read once, exactly, into a session; for each codec a copy of it is recoded by `kvcli
compact --kv-dtype` and opened anew, so that every page comes from the file as an answer would find
it. Forks at several places are then given the text's own next tokens one by one. Rows per codec:

- perplexity of those tokens, and its ratio to raw's;
- KL: mean divergence of the next token's distribution from raw's, nats; the worst tenth of it;
- same token: share of places where the likeliest token is raw's;
- smaller: bytes of the raw file over those of this one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from engine.engine import Engine
from engine.sequence import Sequence
from kvcli import opening
from kvcli.options import RunOptions
from tests.bench.harness import ROOT, report
from tests.bench.hidden import DEFAULT_MODEL, PROSE, code_lines, prose_lines, token_counter

CODECS = ("fp8", "int8", "k8v4", "int4")


def kvcli(*arguments: str | Path) -> None:
    """Run one command."""
    command = [sys.executable, "-m", "kvcli.app", *map(str, arguments)]
    subprocess.run([*command, "--quiet"], cwd=ROOT, check=True)


def write_texts(folder: Path, tokens: int, seed: int, code: Path) -> list[Path]:
    """Real texts of about `tokens` tokens each: the middle of two manuals, and source files."""
    sources = {pdf.stem: list(prose_lines([pdf])) for pdf in PROSE if pdf.exists()}
    sources = {name: lines[len(lines) // 2 :] for name, lines in sources.items()}
    sources["code"] = list(code_lines(code, seed))
    count, paths = token_counter(), []
    for name, lines in sources.items():
        kept, used = [], 0
        for line in lines:
            used += count(line + "\n")
            if used > tokens:
                break
            kept.append(line)
        paths.append(folder / f"{name}.txt")
        paths[-1].write_text("\n".join(kept) + "\n", "utf-8")
    return paths


def next_logits(
    engine: Engine, sequence: Sequence, places: list[int], num_tokens: int
) -> Iterator[tuple[Tensor, int]]:
    """Logits before each of the `num_tokens` tokens behind each place, and the token itself."""
    for place in places:
        fork = engine.fork(sequence, place)
        try:
            for at in range(place, place + num_tokens):
                fork.token_ids.append(sequence.token_ids[at])
                yield engine.compute(fork).float().clone(), sequence.token_ids[at + 1]
        finally:
            engine.drop(fork)


def logits_of(
    session: Path, places: list[int], num_tokens: int, model: str
) -> tuple[Tensor, list[int]]:
    """Log-probabilities `[places * num_tokens, vocabulary]` fp32 of a session, and what came."""
    options = RunOptions(model=model, dashboard="off", quiet=True)
    with opening.go_on(options, session) as run:
        talk = run.conversation
        within = [place for place in places if place + num_tokens < talk.document_tokens]
        found = list(next_logits(talk.engine, talk.sequence, within, num_tokens))
    return torch.log_softmax(torch.stack([one for one, _ in found]), -1), [id_ for _, id_ in found]


def compare(raw: Tensor, other: Tensor, came: list[int]) -> dict[str, float]:
    """The figures of one codec."""
    loss = -other[torch.arange(len(came)), torch.tensor(came)].mean()
    divergence = (raw.exp() * (raw - other)).sum(-1)
    worst = divergence.sort().values[-max(1, len(came) // 10) :]
    return {
        "perplexity": float(loss.exp()),
        "KL mean": float(divergence.mean()),
        "KL worst tenth": float(worst.mean()),
        "same token": float((raw.argmax(-1) == other.argmax(-1)).float().mean()),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--tokens", type=int, default=4608, help="of each text")
    parser.add_argument("--places", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--next", type=int, default=48, help="tokens behind each place")
    parser.add_argument("--codec", action="append", help="repeatable; default: all")
    parser.add_argument("--code", type=Path, default=ROOT / "kvcli", help="folder of Python files")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    codecs = options.codec or CODECS
    logs: dict[str, list[Tensor]] = {name: [] for name in ("raw", *codecs)}
    sizes = dict.fromkeys(logs, 0)
    came: list[int] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for text in write_texts(folder, options.tokens, options.seed, options.code):
            raw = text.with_suffix(".kv")
            kvcli("ingest", text, "-o", raw, "--attention", "exact", "--model", options.model)
            for codec in logs:
                session = raw
                if codec != "raw":
                    session = folder / f"{text.stem}-{codec}.kv"
                    shutil.copyfile(raw, session)
                    kvcli("compact", session, "--kv-dtype", codec)
                sizes[codec] += session.stat().st_blocks * 512
                found, ids = logits_of(session, options.places, options.next, options.model)
                logs[codec].append(found)
                came += ids if codec == "raw" else []
                print(f"{text.stem}, {codec}: {session.stat().st_size:,} bytes", flush=True)
    raw_logits = torch.cat(logs["raw"])
    rows = {}
    for codec, found in logs.items():
        rows[codec] = compare(raw_logits, torch.cat(found), came)
        rows[codec]["of raw's"] = rows[codec]["perplexity"] / rows["raw"]["perplexity"]
        rows[codec]["smaller"] = sizes["raw"] / sizes[codec]
    report(
        f"quality of coded KV, {len(came)} tokens", rows,
        model=options.model, places=" ".join(map(str, options.places)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
