"""What GPUs offer, asked once: their names, links, memory that they share, and libraries beside.

Owns the questions to torch, `nvidia-smi` and the packages; what the answers mean is said by
`kvcli.commands.devices`. Nothing is allocated on a device.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from engine.tiers.cuda_runtime import find_runtime

LINK_QUERY = "uuid,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"
ASK_SECONDS = 20.0
NVIDIA_FS = Path("/proc/driver/nvidia-fs/stats")
"""There while the kernel module of GPUDirect storage is loaded."""


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """A GPU's way to RAM, as `nvidia-smi` tells."""

    generation: int
    """PCIe generation that it works at under load; an idle one may be below."""
    width: int
    """Lanes now."""
    most_width: int


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU."""

    name: str
    total_bytes: int
    free_bytes: int
    capability: tuple[int, int]
    link: LinkFacts | None
    """None: `nvidia-smi` does not tell."""
    shares_memory: bool | None
    """Whether the CPU and the GPU may use managed memory at once; None: nobody to ask."""
    reads_pageable: bool | None
    """Whether it reads all of the process's memory by itself; None: nobody to ask."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What all GPUs share."""

    gpus: tuple[GpuFacts, ...]
    triton: str | None
    """Version, if it is installed."""
    bindings: str | None
    """Version of cuda-bindings, if it can be used."""
    kvikio: str | None
    """Version, if it is installed."""
    bypasses_ram: bool | None
    """Whether kvikio would read from disk to the GPU directly; None: it is not installed."""


def gather_facts() -> MachineFacts:
    """Ask for everything; whatever does not answer is left open."""
    import torch

    links = _links()
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        gpus.append(
            GpuFacts(
                name=properties.name,
                total_bytes=total,
                free_bytes=free,
                capability=(properties.major, properties.minor),
                link=links.get(f"GPU-{properties.uuid}"),  # `nvidia-smi` may count otherwise
                shares_memory=_attribute("cudaDevAttrConcurrentManagedAccess", index),
                reads_pageable=_attribute("cudaDevAttrPageableMemoryAccess", index),
            )
        )
    kvikio = _version("kvikio-cu13") or _version("kvikio-cu12")
    return MachineFacts(
        gpus=tuple(gpus),
        triton=_version("triton"),
        bindings=_version("cuda-bindings") if find_runtime() is not None else None,
        kvikio=kvikio,
        bypasses_ram=_bypasses_ram() if kvikio else None,
    )


def parse_links(answer: str) -> dict[str, LinkFacts]:
    """Read what `nvidia-smi` says to `LINK_QUERY`, a line a GPU; what tells no numbers is left out.

    Returns:
        The links by the GPUs' names for themselves, "GPU-" and a UUID.
    """
    found = {}
    for line in answer.splitlines():
        uuid, *numbers = (field.strip() for field in line.split(","))
        if len(numbers) == 3 and all(number.isdigit() for number in numbers):
            found[uuid] = LinkFacts(*map(int, numbers))
    return found


def _links() -> dict[str, LinkFacts]:
    command = ["nvidia-smi", f"--query-gpu={LINK_QUERY}", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_links(asked.stdout)


def _attribute(name: str, index: int) -> bool | None:
    runtime = find_runtime()
    if runtime is None:
        return None
    error, value = runtime.cudaDeviceGetAttribute(getattr(runtime.cudaDeviceAttr, name), index)
    return None if int(error) else bool(value)


def _bypasses_ram() -> bool:
    """Whether there is a driver for direct reads; else kvikio reads to RAM and copies, as we do."""
    try:
        defaults: Any = import_module("kvikio.defaults")
        return NVIDIA_FS.exists() and not defaults.is_compat_mode_preferred()
    except Exception:  # a library without its driver fails in many ways
        return False


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
