"""Prefill and decode of the default model, exact, against transformers and llama.cpp.

`--ram-share 8` repeats it with a RAM budget of one eighth of the KV and compares the tokens.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.telemetry import Telemetry
from kvcli.models import resolve
from tests.bench.floor import attention_seconds, forward_seconds
from tests.bench.harness import alternate, default_model, real_text, report

DECODED = 24


def ours(
    model: LoadedModel, ids: list[int], ram_bytes: int, tokens: dict[str, list[int]], name: str
) -> Callable[[], dict[str, float]]:
    """One prefill and a few decoded tokens by the engine."""

    def once() -> dict[str, float]:
        telemetry = Telemetry()
        config = EngineConfig(ram_bytes=ram_bytes)
        engine = Engine(model, config, telemetry, num_tokens=len(ids) + DECODED)
        sequence = engine.new_sequence()
        sequence.token_ids.extend(ids)
        started = time.perf_counter()
        logits = engine.compute(sequence)
        prefill = time.perf_counter() - started
        steps = []
        for _ in range(DECODED):
            started = time.perf_counter()
            sequence.token_ids.append(int(logits.argmax()))
            logits = engine.compute(sequence)
            steps.append(time.perf_counter() - started)
        tokens[name] = sequence.token_ids[len(ids) :]
        sample = telemetry.sample()
        engine.close()
        return {
            "prefill tok/s": len(ids) / prefill,
            "decode tok/s": 1 / sorted(steps)[len(steps) // 2],
            "stall s": sample.stall_s,
            "read MB": sample.read_bytes / 1e6,
            "written MB": sample.written_bytes / 1e6,
        }

    return once


def transformers_peer(ids: list[int]) -> Callable[[], dict[str, float]]:
    """The same by transformers, SDPA and DynamicCache."""
    model = AutoModelForCausalLM.from_pretrained(
        resolve("smollm2-135m"), dtype=torch.bfloat16, attn_implementation="sdpa"
    ).eval()

    @torch.inference_mode()
    def once() -> dict[str, float]:
        cache = DynamicCache(config=model.config)
        started = time.perf_counter()
        out = model(torch.tensor([ids]), past_key_values=cache, logits_to_keep=1)
        prefill = time.perf_counter() - started
        steps = []
        for _ in range(DECODED):
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            started = time.perf_counter()
            out = model(token, past_key_values=cache, logits_to_keep=1)
            steps.append(time.perf_counter() - started)
        return {
            "prefill tok/s": len(ids) / prefill,
            "decode tok/s": 1 / sorted(steps)[len(steps) // 2],
        }

    return once


LLAMA = """
import sys, time
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=8192, n_batch=512, n_threads={threads}, verbose=False)
ids = [int(x) for x in sys.stdin.read().split()]
started = time.perf_counter(); model.eval(ids); prefill = time.perf_counter() - started
steps = []
for _ in range({decoded}):
    started = time.perf_counter(); model.eval([100]); steps.append(time.perf_counter() - started)
print(len(ids) / prefill, 1 / sorted(steps)[len(steps) // 2])
"""


def llama_peer(python: str, gguf: Path, ids: list[int]) -> Callable[[], dict[str, float]]:
    """The same by llama-cpp-python, in an environment of its own."""
    code = LLAMA.format(threads=torch.get_num_threads(), decoded=DECODED)

    def once() -> dict[str, float]:
        done = subprocess.run(
            [python, "-c", code, str(gguf)], input=" ".join(map(str, ids)),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        prefill, decode = map(float, done.stdout.split())
        return {"prefill tok/s": prefill, "decode tok/s": decode}

    return once


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192 - DECODED)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ram-share", type=int, default=0, help="also with 1/N of the KV as RAM")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--llama-python", help="a Python that has llama-cpp-python")
    parser.add_argument("--gguf", type=Path, help="the model file for it")
    options = parser.parse_args()
    model = default_model()
    ids = real_text(model, options.tokens)
    tokens: dict[str, list[int]] = {}
    things = {"kvcli, all resident": ours(model, ids, 4 << 30, tokens, "resident")}
    if options.ram_share:
        budget = 8192 * model.geometry.token_bytes // options.ram_share
        name = f"kvcli, --ram {budget / (1 << 20):.1f}MiB"
        things[name] = ours(model, ids, budget, tokens, "small")
    if not options.no_peers:
        things["transformers SDPA"] = transformers_peer(ids)
        if options.llama_python:
            things["llama.cpp"] = llama_peer(options.llama_python, options.gguf, ids)
    rows = alternate(things, options.repeats)
    forward = forward_seconds(model, len(ids), 1024)
    attention = attention_seconds(model, len(ids), 1024, 2048)
    rows["floor (same kernels alone)"] = {"prefill tok/s": len(ids) / (forward + attention)}
    facts = {"tokens": len(ids), "forward s": round(forward, 2), "attention s": round(attention, 2)}
    if options.ram_share:
        facts["same tokens"] = tokens["small"] == tokens["resident"]
    report("exact prefill and decode", rows, **facts)


if __name__ == "__main__":
    main()
