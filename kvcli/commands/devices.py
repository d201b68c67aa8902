"""The part of `kvcli doctor` about devices: what a run will use, and why.

Owns the words. What there is was asked by `kvcli.gpu_facts`; a change to what the engine does on a
GPU is told here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernels.capability import LEAST_CAPABILITY
from kvcli.commands.check import Check, Mark
from kvcli.sizes import format_size

if TYPE_CHECKING:
    from kvcli.gpu_facts import LinkFacts, MachineFacts

LANE_RATES = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes per second of a lane one way, by PCIe generation, before the headers of packets."""

GRAPHS = (
    "not used: where a token's keys go and how many there are is given to the kernels as numbers, "
    "which a graph would repeat"
)


def device_checks(facts: MachineFacts) -> Iterator[Check]:
    """Say what will be used of the GPUs, one line a subject.

    Args:
        facts: At least one GPU.
    """
    for number, gpu in enumerate(facts.gpus):
        sm = f"compute capability {gpu.capability[0]}.{gpu.capability[1]}"
        room = f"{format_size(gpu.free_bytes)} of {format_size(gpu.total_bytes)} free"
        yield Check(f"cuda:{number}", Mark.GOOD, f"{gpu.name}, {sm}, {room}, {_link(gpu.link)}")
    if len(facts.gpus) > 1:
        found = (
            f"one, cuda:0; weights that do not fit it are spread over all {len(facts.gpus)}, and "
            "each layer's pages lie beside it"
        )
        yield Check("device map", Mark.GOOD, found)
    yield _kernels(facts)
    yield _copies(facts)
    yield _unified(facts)
    yield _direct_storage(facts)
    yield Check("CUDA graphs", Mark.GOOD, GRAPHS)


def _link(link: LinkFacts | None) -> str:
    if link is None:
        return "link not known (nvidia-smi does not tell)"
    rate = LANE_RATES.get(link.generation, 0.0) * link.width
    told = f", {format_size(int(rate))}/s one way at most" if rate else ""
    lanes = f"x{link.width}"
    if link.width < link.most_width:
        lanes += f" of the x{link.most_width} that it could have"
    return f"PCIe {link.generation} {lanes}{told}"


def _kernels(facts: MachineFacts) -> Check:
    """What computes attention."""
    if facts.triton is None:
        return Check(
            "kernels",
            Mark.NOTE,
            "PyTorch, for Triton is not installed",
            "Install the build of torch for CUDA, which brings it.",
        )
    old = [gpu for gpu in facts.gpus if gpu.capability < LEAST_CAPABILITY]
    if old:
        least = ".".join(map(str, LEAST_CAPABILITY))
        found = f"PyTorch on {old[0].name}: Triton kernels need compute capability {least}"
        return Check("kernels", Mark.NOTE, found)
    found = f"Triton {facts.triton} where it has one: tokens of an answer find their pages by table"
    return Check("kernels", Mark.GOOD, found)


def _copies(facts: MachineFacts) -> Check:
    """How pages get from RAM to the device."""
    if facts.bindings:
        how = f"neighbours as one (cuda-bindings {facts.bindings})"
        return Check("copies", Mark.GOOD, f"page-locked RAM, beside compute; {how}")
    return Check(
        "copies",
        Mark.NOTE,
        "page-locked RAM, beside compute; each page of a layer is a copy of its own",
        "Install cuda-bindings (13 or newer) to have neighbours copied as one.",
    )


def _unified(facts: MachineFacts) -> Check:
    """Whether `--pager unified` can be had."""
    if not facts.bindings:
        found = "not to be had: it needs cuda-bindings, 13 or newer"
    elif not all(gpu.shares_memory for gpu in facts.gpus):
        found = "not to be had: a GPU cannot share memory with the CPU while both work"
    elif all(gpu.reads_pageable for gpu in facts.gpus):
        found = "to be had; the GPU also reads all other memory of the process by itself"
    else:
        found = "to be had, with managed memory"
    return Check("--pager unified", Mark.GOOD, found)


def _direct_storage(facts: MachineFacts) -> Check:
    """Why sessions are read through RAM even where the GPU could read the disk itself."""
    reason = "not used: what is read is checked by the CPU before it is served, so it passes RAM"
    if facts.kvikio is None:
        return Check("GPUDirect storage", Mark.GOOD, reason)
    way = "would bypass RAM" if facts.bypasses_ram else "would read through RAM as well"
    return Check("GPUDirect storage", Mark.GOOD, f"{reason} (kvikio {facts.kvikio} {way})")
