"""Compiles every Triton kernel for three architectures, without a GPU, and reports what they take.

To add a kernel, add an entry to `CASES`: a name and a call of the public function that launches it,
on meta tensors of representative shapes. Whatever the call launches is compiled exactly as a device
would get it: same argument types, alignments, tile sizes, warps and stages. Put "head 128" into the
name if the kernel must not spill.

Runs as a program, because the interpreter and the compiler do not mix in one process:
`TRITON_INTERPRET` is read when kernels are defined. `python tests/kernels/compile_all.py --write`
renews `kernels/RESOURCES.md`; `--json` is what `test_compile.py` reads.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "0"

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import page_cases
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from kernels import triton_attention, triton_paged, triton_probe, triton_tiles

TABLE = Path(__file__).parents[2] / "kernels" / "RESOURCES.md"
NAMES = {80: "sm_80 (A100)", 90: "sm_90 (H100)", 100: "sm_100 (B200)"}
DEVICES = {
    80: SimpleNamespace(multi_processor_count=108, shared_memory_per_block_optin=166_912),
    90: SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=232_448),
    100: SimpleNamespace(multi_processor_count=148, shared_memory_per_block_optin=232_448),
}
"""What `torch.cuda.get_device_properties` would tell, by compute capability."""


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor without memory: launches need its type and strides alone."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _part(head_dim: int, dtype: torch.dtype = torch.bfloat16, **options: Any) -> None:
    queries, keys = empty(32, 1024, head_dim, dtype=dtype), empty(8, 1024, head_dim, dtype=dtype)
    triton_attention.attention_part(queries, keys, keys, scaling=0.1, **options)


def _scan(head_dim: int, **options: Any) -> None:
    queries, keys = empty(32, 16, head_dim), empty(8, 1 << 20, head_dim)
    triton_probe.page_lse(queries, keys, scaling=0.1, page_tokens=64, **options)


def _table(head_dim: int, **options: Any) -> None:
    arena, table = empty(2, 8, 1 << 20, head_dim), empty(1024, dtype=torch.int32)
    triton_paged.attention_pages(
        empty(32, 1, head_dim), arena[0], arena[1], table, num_keys=65_500, page_tokens=64,
        scaling=0.1, first_query=65_500, first_key=0, **options,
    )  # fmt: skip


GEMMA: dict[str, Any] = {"causal": True, "window": 4096, "softcap": 50.0}

CASES: dict[str, Callable[[], object]] = {
    "prefill, head 64, past": lambda: _part(64),
    "prefill, head 128, past": lambda: _part(128),
    "prefill, head 128, causal": lambda: _part(128, causal=True),
    "prefill, head 128, causal, window, soft cap": lambda: _part(128, **GEMMA),
    "prefill, head 128, causal, fp32": lambda: _part(128, torch.float32, causal=True),
    "prefill, head 256, causal, window, soft cap": lambda: _part(256, **GEMMA),
    "scan of pages, head 64": lambda: _scan(64),
    "scan of pages, head 128": lambda: _scan(128),
    "scan of pages, head 128, soft cap, bias": lambda: _scan(
        128, softcap=50.0, bias=empty(32, 16, 1)
    ),
    "table of pages, head 64": lambda: _table(64),
    "table of pages, head 128": lambda: _table(128),
    "table of pages, head 128, window, soft cap": lambda: _table(128, window=4096, softcap=50.0),
    "table of pages, head 256": lambda: _table(256),
}
CASES |= page_cases.CASES


@dataclass(frozen=True, slots=True)
class Resources:
    """What one compiled kernel takes."""

    case: str
    kernel: str
    capability: int
    warps: int
    stages: int
    registers: int
    """Of a thread."""
    stack: int
    """Bytes of a thread outside of registers: what spilled."""
    shared: int
    """Bytes of a program."""


class AbsentDevice:
    """Stands for the driver of a device that is not there."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target


def compile_case(name: str, capability: int) -> Iterator[Resources]:
    """Compile what one case launches, and read what it takes."""
    launched: list[tuple[str, Any]] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        self.device_caches.clear()  # what is there was compiled for another architecture
        launched.append((self.__name__, run(self, *args, grid=grid, warmup=True, **options)))

    triton.runtime.driver.set_active(AbsentDevice(capability))
    torch.cuda.get_device_properties = lambda device=None: DEVICES[capability]
    triton_tiles.processors.cache_clear()
    triton_tiles.shared_bytes.cache_clear()
    JITFunction.run = compile_only
    try:
        CASES[name]()
    finally:
        JITFunction.run = run
    assert launched, f"{name} launches nothing"
    for kernel, compiled in launched:
        registers, stack = _registers(compiled.asm["cubin"])
        about = compiled.metadata
        yield Resources(
            name, kernel.strip("_"), capability, about.num_warps, about.num_stages, registers,
            stack, about.shared,
        )  # fmt: skip


def _registers(cubin: bytes) -> tuple[int, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])


def table(rows: list[Resources]) -> str:
    """Write the report: a row for each kernel of each case, `registers / stack / shared`."""
    lines = [
        "# What the compiled kernels take",
        "",
        f"By triton {triton.__version__} (`python tests/kernels/compile_all.py --write`): "
        "registers a thread / bytes spilled a thread / KiB of shared memory a program (warps, "
        "stages). bf16 unless told.",
        "",
        "| case | kernel | " + " | ".join(NAMES.values()) + " |",
        "| --- " * (2 + len(NAMES)) + "|",
    ]
    for case, kernel in dict.fromkeys((row.case, row.kernel) for row in rows):
        cells = [
            f"{row.registers} / {row.stack} / {row.shared / 1024:.0f} ({row.warps}, {row.stages})"
            for row in rows
            if (row.case, row.kernel) == (case, kernel)
        ]
        lines.append(f"| {case} | `{kernel}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--write", action="store_true", help=f"renew {TABLE.name}")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    rows = []
    for capability in NAMES:
        for name in CASES:
            if options.only in name:
                rows.extend(compile_case(name, capability))
                print(*asdict(rows[-1]).values(), sep="\t", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    elif options.write:
        TABLE.write_text(table(rows))
    else:
        print(table(rows), end="")


if __name__ == "__main__":
    main()
