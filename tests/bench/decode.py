"""What a token costs: the untouched model's step, the engine's, and the floors below them.

A decode step reads every weight and the whole past once, so its floor is those bytes at the speed
of memory. Prefill is bound by products, so its floor is the same products and the same attention
with nothing between them. `--threads 1` counts processor time instead of the wall clock, which is
what can still be compared on a machine that is busy with other work.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.model.packed import PackedLinear, WeightForm
from engine.telemetry import Telemetry
from kernels.attention import attention_part
from kvcli.models import resolve
from tests.bench.floor import attention_seconds
from tests.bench.harness import ROOT, alternate, default_model, real_text, report

Rows = dict[str, dict[str, float]]

DECODED = 8
"""Tokens of one turn; their median is taken."""

BANDWIDTH_BYTES = 256 << 20

START = """
import time; begun = time.perf_counter()
import torch, transformers
from tests.bench.harness import default_model
import transformers.models.llama.modeling_llama
imported = time.perf_counter(); default_model()
print(imported - begun, time.perf_counter() - imported)
"""


class Clock:
    """Seconds of the wall clock, or of this thread's processor time."""

    def __init__(self, threads: int) -> None:
        self.now = time.thread_time if threads == 1 else time.perf_counter

    def once(self, call: Callable[[], object]) -> float:
        """Seconds of a call."""
        started = self.now()
        call()
        return self.now() - started

    def median(self, call: Callable[[], object], times: int) -> float:
        """Median seconds of a call."""
        return statistics.median(self.once(call) for _ in range(times))


def untouched(model: LoadedModel) -> Callable[[], object]:
    """One token through the model as transformers has it, eager, nothing before it."""
    dtype = torch.float32 if model.weight_form is not WeightForm.OWN else model.dtype
    stock = AutoModelForCausalLM.from_pretrained(
        resolve("smollm2-135m"), dtype=dtype, attn_implementation="eager"
    ).eval()
    return torch.inference_mode()(partial(stock, torch.tensor([[100]]), use_cache=False))


class Decoder:
    """The engine with a past of some tokens, which grows by one with each step."""

    def __init__(self, model: LoadedModel, ids: list[int], most: int) -> None:
        config = EngineConfig(ram_bytes=4 << 30)
        self.engine = Engine(model, config, Telemetry(), num_tokens=len(ids) + most)
        self.sequence = self.engine.new_sequence()
        self.sequence.token_ids.extend(ids)
        self.logits = self.engine.compute(self.sequence)

    def step(self) -> None:
        """Decode one token."""
        self.sequence.token_ids.append(int(self.logits.argmax()))
        self.logits = self.engine.compute(self.sequence)


def products(model: LoadedModel) -> list[tuple[nn.Module, int]]:
    """The linear layers of a model, each with the width of what it reads."""
    found: list[tuple[nn.Module, int]] = []
    for module in model.model.modules():
        if isinstance(module, PackedLinear | nn.Linear):
            found.append((module, module.in_features))
    return found


@torch.inference_mode()
def all_products(linears: list[tuple[nn.Module, int]], inputs: dict[int, Tensor]) -> None:
    """Every product of one step."""
    for linear, width in linears:
        linear(inputs[width])


def inputs_of(
    linears: list[tuple[nn.Module, int]], tokens: int, dtype: torch.dtype
) -> dict[int, Tensor]:
    """What the linear layers read, by width, `[1, tokens, width]`."""
    return {width: torch.randn(1, tokens, width).to(dtype) for _, width in linears}


def one_token_attention(model: LoadedModel, tokens: int) -> Callable[[], None]:
    """The attention of one token to all before it, part by part, every layer."""
    geometry, part = model.geometry, EngineConfig(ram_bytes=0).part_tokens
    shape = geometry.num_layers, 2, geometry.num_kv_heads, tokens, geometry.head_dim
    arena = torch.randn(shape).to(getattr(torch, geometry.dtype))
    queries = torch.randn(model.num_heads, 1, geometry.head_dim).to(arena.dtype)

    def run() -> None:
        for keys, values in arena:
            for begin in range(0, tokens, part):
                span = slice(begin, begin + part)
                attention_part(
                    queries, keys[:, span], values[:, span],
                    scaling=0.125, first_query=tokens, first_key=begin,
                )  # fmt: skip

    return torch.inference_mode()(run)


def decode_rows(
    model: LoadedModel, ids: list[int], threads: int, repeats: int
) -> tuple[Rows, float]:
    """Milliseconds of a token in every way, and the megabytes that its step reads."""
    clock = Clock(threads)
    decoder = Decoder(model, ids, (repeats + 1) * DECODED)
    linears = products(model)
    inputs = inputs_of(linears, 1, model.dtype)
    memory = torch.ones(BANDWIDTH_BYTES // 4)
    weights = sum(linear_bytes(linear) for linear, _ in linears)
    past = len(ids) * model.geometry.token_bytes

    def floor() -> dict[str, float]:
        seconds = clock.median(memory.sum, DECODED)
        return {"ms": 1e3 * (weights + past) / BANDWIDTH_BYTES * seconds}

    def timed(call: Callable[[], object]) -> Callable[[], dict[str, float]]:
        return lambda: {"ms": 1e3 * clock.median(call, DECODED)}

    rows = alternate(
        {
            "untouched model, eager, no past": timed(untouched(model)),
            "engine, decode": timed(decoder.step),
            "its products alone": timed(partial(all_products, linears, inputs)),
            "its attention alone": timed(one_token_attention(model, len(ids))),
            "floor: weights and past at memory speed": floor,
        },
        repeats,
    )
    decoder.engine.close()
    eager = rows["untouched model, eager, no past"]["ms"]
    for row in rows.values():
        row["of eager"] = row["ms"] / eager
    return rows, (weights + past) / 1e6


def linear_bytes(linear: nn.Module) -> int:
    """Bytes of a linear layer's weights."""
    if isinstance(linear, PackedLinear):
        return linear.in_features * linear.out_features * 2
    return sum(weight.nbytes for weight in linear.parameters())


def prefill_rows(
    model: LoadedModel, ids: list[int], lengths: list[int], threads: int, repeats: int
) -> Rows:
    """Tokens a second of exact prefill, and of its floor, by length."""
    clock, config = Clock(threads), EngineConfig(ram_bytes=4 << 30)
    head = model.model.get_output_embeddings()  # it sees only the last token
    linears = [found for found in products(model) if found[0] is not head]
    inputs = inputs_of(linears, config.step_tokens, model.dtype)

    def prefill(tokens: int) -> dict[str, float]:
        engine = Engine(model, config, Telemetry(), num_tokens=tokens)
        sequence = engine.new_sequence()
        sequence.token_ids.extend(ids[:tokens])
        seconds = clock.once(partial(engine.compute, sequence))
        engine.close()
        step = clock.once(partial(all_products, linears, inputs))
        bare = step * tokens / config.step_tokens
        bare += attention_seconds(
            model, tokens, config.step_tokens, config.part_tokens, clock.now
        )  # fmt: skip
        return {"tok/s": tokens / seconds, "floor tok/s": tokens / bare, "of floor": bare / seconds}

    return alternate({f"prefill of {n:,}": partial(prefill, n) for n in lengths}, repeats)


def start_up(repeats: int) -> dict[str, float]:
    """Median seconds of a new process: importing, and loading the default model."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, "-c", START]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        runs.append([float(figure) for figure in done.stdout.split()])
    imports, loads = (statistics.median(column) for column in zip(*runs, strict=True))
    return {"import s": imports, "load s": loads}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048, 4096])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = default_model()
    ids = real_text(model, max(options.tokens, *options.prefill, 0))
    rows, megabytes = decode_rows(model, ids[: options.tokens], options.threads, options.repeats)
    kind = "processor" if options.threads == 1 else "wall clock"
    report(
        "decode", rows, tokens=options.tokens, threads=options.threads, clock=kind,
        weights=model.weight_form.value, bytes_read_MB=round(megabytes),
    )  # fmt: skip
    if options.prefill:
        rows = prefill_rows(model, ids, options.prefill, options.threads, options.repeats)
        report("prefill", rows, threads=options.threads, clock=kind)
    report("start-up", {"default model": start_up(options.repeats)})


if __name__ == "__main__":
    main()
