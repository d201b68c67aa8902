"""Putting the parts of an engine together: budget, stack, tiers, threads.

Owns the order in which things are allocated: the plan first, then memory within it. Computes
nothing.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.attention.memory import DeviceMemory, TierMemory
from engine.attention.sketch import sketch_bytes
from engine.codecs import CODECS
from engine.config import EngineConfig
from engine.errors import ConfigError, IdentityMismatch, StorageError
from engine.memory.budget import FORK_TOKENS, MemoryPlan, least_host_pages, plan_memory
from engine.memory.slot_pool import SlotPool
from engine.model.load import LoadedModel
from engine.policies import POLICIES
from engine.policies.prefetch import PREFETCH_POLICIES
from engine.session import Identity, SessionFile, extents_bytes
from engine.telemetry import Telemetry
from engine.tiers.coding import buffer_bytes, require_codec
from engine.tiers.copies import copy_streams
from engine.tiers.device import DeviceTier
from engine.tiers.host import HostTier
from engine.tiers.managed import ManagedMemory
from engine.tiers.prefetch import Prefetcher
from engine.tiers.residency import Arena, Residency
from engine.tiers.stack import TierStack
from engine.tiers.transfer import Transfer
from engine.tiers.unified import UnifiedTransfer
from engine.types import KVGeometry, Part

DEVICE_SHARE = 0.8
"""Share of a GPU's free memory that the device tier may take, with managed memory if there is any;
the rest is for activations."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything an engine runs on."""

    plan: MemoryPlan
    stack: TierStack
    memory: TierMemory
    prefetcher: Prefetcher | None
    file: SessionFile | None
    """Where pages go: the session file, or a nameless one that ends with the engine."""


def assemble(
    model: LoadedModel,
    config: EngineConfig,
    telemetry: Telemetry,
    *,
    num_tokens: int,
    file: SessionFile | None,
    fork_tokens: int = FORK_TOKENS,
) -> Assembly:
    """Plan memory and allocate it.

    Args:
        model: A loaded model.
        config: Settings.
        telemetry: Where work will be booked.
        num_tokens: Tokens the longest sequence may grow to.
        file: The session file, if there is one.
        fork_tokens: Tokens that sequences beside the main one may hold.

    Raises:
        OverBudget: The budgets do not hold one segment; nothing was allocated.
        IdentityMismatch: The file belongs to another model, other pages or another codec.
        ConfigError: Unified memory is wanted where there is none, or a codec that will not do.
        StorageError: Pages must go to disk, and the spill folder cannot be written or is too full.
    """
    plan = plan_for(model, config, num_tokens=num_tokens, file=file, fork_tokens=fork_tokens)
    if plan.needs_disk:
        file = _spill_file(config, model.geometry, num_tokens)
    stack = _stack(model, config, telemetry, plan, file)
    stack.residency.publish()
    memory = _memory(model, config, telemetry, plan, file)
    prefetcher = _prefetcher(config, telemetry, plan, stack, memory)
    return Assembly(plan, stack, memory, prefetcher, file)


def plan_for(
    model: LoadedModel,
    config: EngineConfig,
    *,
    num_tokens: int,
    file: SessionFile | None,
    fork_tokens: int = FORK_TOKENS,
) -> MemoryPlan:
    """Check and plan as `assemble` does, and allocate nothing.

    Args:
        model: A loaded model.
        config: Settings.
        num_tokens: Tokens the longest sequence may grow to.
        file: The session file, if there is one.
        fork_tokens: Tokens that sequences beside the main one may hold.

    Raises:
        OverBudget: The budgets do not hold one segment.
        IdentityMismatch: The file belongs to another model, other pages or another codec.
        ConfigError: A codec will not do.
    """
    if file is not None:
        require_identity(file, model)
        require_codec(file, config.kv_codecs.disk)
    is_cpu, is_unified = model.device.type == "cpu", config.pager == "unified"
    is_coded = _require_possible(config, is_mapped=is_unified and is_cpu)
    ram_bytes, device_bytes = config.ram_bytes, config.device_bytes
    if not is_cpu:
        room = device_room(model.layer_devices)
        device_bytes = (room // 2 if is_unified else room) if device_bytes is None else device_bytes
        ram_bytes = min(ram_bytes, room - device_bytes) if is_unified else ram_bytes
    return plan_memory(
        model.geometry,
        num_tokens=num_tokens,
        ram_bytes=ram_bytes,
        device_bytes=device_bytes,
        shared_memory=is_cpu,
        has_file=file is not None,
        part_tokens=config.part_tokens,
        stream_depth=config.stream_depth,
        fork_tokens=fork_tokens,
        sketch_bytes=_sketch_bytes(model, num_tokens) if config.sketch else 0,
        is_mapped=is_unified and is_cpu,
        coding_bytes=buffer_bytes(model.geometry, config.io_threads, config.part_tokens)
        if is_coded
        else 0,
    )


def _require_possible(config: EngineConfig, *, is_mapped: bool) -> bool:
    """Whether pages on disk are coded.

    Raises:
        ConfigError: They cannot be.
    """
    codecs = config.kv_codecs
    if codecs.host != "raw":
        raise ConfigError(
            f"pages in RAM cannot be coded as {codecs.host} yet", "Leave ram= at raw in --kv-dtype."
        )
    if codecs.disk not in CODECS:
        raise ConfigError(f"no codec {codecs.disk!r}", f"Take one of {', '.join(CODECS)}.")
    if codecs.disk != "raw" and is_mapped:
        raise ConfigError(
            f"pages coded as {codecs.disk} cannot be used where the file is mapped",
            "Leave --pager at explicit, or --kv-dtype at raw.",
        )
    return codecs.disk != "raw"


def new_session(
    path: Path, model: LoadedModel, codec: str = "raw", *, overwrite: bool = False
) -> SessionFile:
    """Start a session of a model; see `SessionFile.create`.

    Args:
        path: The final name.
        model: Whose KV.
        codec: How its pages are coded.
        overwrite: Whether the first commit may replace a session file at `path`.

    Raises:
        ConfigError: The name is taken, or the model's pages cannot be coded so.
        StorageError: The folder is missing, read-only or full.
    """
    coded = CODECS[codec].sizes(model.geometry)
    return SessionFile.create(
        path, identity_of(model, codec), model.geometry, coded=coded, overwrite=overwrite
    )


def identity_of(model: LoadedModel, codec: str = "raw") -> Identity:
    """What a session file of this model must have been computed with."""
    return Identity(
        model=model.name,
        weights=model.weights_fingerprint,
        tokenizer=model.tokenizer_fingerprint,
        template=model.template_fingerprint,
        rope=model.rope_fingerprint,
        dtype=model.geometry.dtype,
        codec=codec,
    )


def require_identity(file: SessionFile, model: LoadedModel) -> None:
    """Refuse a session file of another model or with other pages; how they are coded is its own.

    Raises:
        IdentityMismatch: Names what differs.
    """
    file.identity.require_same(identity_of(model, file.identity.codec))
    if file.geometry != model.geometry:
        raise IdentityMismatch(
            f"{file.path}: its pages are {file.geometry}, this run wants {model.geometry}",
            "Give the --page-tokens it was made with, or compute it again: kvcli resume --rebuild",
        )


def _spill_file(config: EngineConfig, geometry: KVGeometry, num_tokens: int) -> SessionFile:
    """A nameless file that has room for every page.

    Raises:
        StorageError: The folder cannot be written, or its disk has too little space.
    """
    codec = config.kv_codecs.disk
    coded = CODECS[codec].sizes(geometry)
    folder = config.spill_folder or Path(tempfile.gettempdir())
    file = SessionFile.spill(folder, geometry, coded, codec)
    try:
        file.free_space_check(extents_bytes(geometry, coded, num_tokens))
    except StorageError:
        file.close()
        raise
    return file


def _sketch_bytes(model: LoadedModel, num_tokens: int) -> int:
    return sketch_bytes(model.geometry, len(model.lookup_layers), num_tokens)


def device_room(layer_devices: Sequence[torch.device]) -> int:
    """Bytes of pages for which GPUs have room beside the model, each for those of its layers.

    Args:
        layer_devices: The device of each layer.
    """
    return min(
        int(free_device_bytes(device) * DEVICE_SHARE) * len(layer_devices) // num_layers
        for device, num_layers in Counter(layer_devices).items()
    )


def free_device_bytes(device: torch.device) -> int:
    """What a GPU has left beside the model."""
    return torch.cuda.mem_get_info(device)[0]


def _stack(
    model: LoadedModel,
    config: EngineConfig,
    telemetry: Telemetry,
    plan: MemoryPlan,
    file: SessionFile | None,
) -> TierStack:
    policy = POLICIES[config.evict]
    residency = Residency(
        device=Arena(SlotPool(plan.device_pages), policy()),
        host=Arena(SlotPool(plan.host_pages), policy()),
        page_bytes=model.geometry.page_bytes,
        telemetry=telemetry,
        disk_bytes=lambda: file.file_bytes if file is not None else 0,
        disk_page_bytes=_disk_page_bytes(model.geometry, file),
    )
    windows = [spec.sliding_window for spec in model.layers]
    reach = None if None in windows else max(window for window in windows if window is not None)
    return TierStack(model.geometry, config.part_tokens, residency, reach)


def _disk_page_bytes(geometry: KVGeometry, file: SessionFile | None) -> int:
    """Bytes of a page on disk, as of most of them."""
    coded = None if file is None else file.coded
    if coded is None:
        return geometry.page_bytes
    return geometry.num_layers * (coded.keys + coded.values)


def _prefetcher(
    config: EngineConfig,
    telemetry: Telemetry,
    plan: MemoryPlan,
    stack: TierStack,
    memory: TierMemory,
) -> Prefetcher | None:
    """A prefetcher for explicit paging, where there is room for pages that were not asked for."""
    is_cache = plan.host_pages > least_host_pages(memory.geometry)
    if not config.prefetch or memory.transfer is None or plan.mapped_bytes or not is_cache:
        return None
    policies = [PREFETCH_POLICIES[name]() for name in config.prefetch]
    made = Prefetcher(policies, stack.residency, memory.host, memory.transfer, telemetry)
    stack.past.prefetcher = made
    return made


def _memory(
    model: LoadedModel,
    config: EngineConfig,
    telemetry: Telemetry,
    plan: MemoryPlan,
    file: SessionFile | None,
) -> TierMemory:
    geometry, is_cuda = model.geometry, model.device.type == "cuda"
    part_pages = config.part_tokens // geometry.page_tokens
    transfer: Transfer | None = None
    if file is not None:
        settings: dict[str, Any] = {
            "write_buffers": plan.write_buffers,
            "part_pages": part_pages,
            "io_threads": config.io_threads,
            "extent_bytes": config.extent_bytes,
            "deadline": config.io_deadline_seconds,
            "pinned": is_cuda,
            "codec": None if file.coded is None else CODECS[file.identity.codec],
        }
        if plan.mapped_bytes:
            ahead, most = plan.stream_depth, plan.mapped_bytes
            transfer = UnifiedTransfer(
                file, geometry, telemetry, mapped_bytes=most, ahead=ahead, **settings
            )
        else:
            depth = plan.stream_depth
            transfer = Transfer(file, geometry, telemetry, stream_depth=depth, **settings)
    beside = {
        device: _device_memory(geometry, part_pages, device) for device in set(model.layer_devices)
    }
    return TierMemory(
        geometry=geometry,
        device=DeviceTier(geometry, plan.device_pages, model.layer_devices),
        host=_host_tier(model, config, plan),
        transfer=transfer,
        telemetry=telemetry,
        beside=tuple(beside[device] for device in model.layer_devices),
    )


def _device_memory(geometry: KVGeometry, part_pages: int, device: torch.device) -> DeviceMemory:
    """What a device needs beside its pages, whichever of its layers computes."""
    up, down = copy_streams(device)
    page_shape = (geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim)
    part_shape = (geometry.num_kv_heads, part_pages * geometry.page_tokens, geometry.head_dim)
    dtype = getattr(torch, geometry.dtype)
    staging = (
        torch.empty((len(Part), part_pages, *page_shape), dtype=dtype, device=device)
        for _ in range(2 if up.has_own_memory else 0)
    )
    scratch = torch.empty((len(Part), *part_shape), dtype=dtype, device=device)
    return DeviceMemory(scratch, up, down, tuple(staging))


def _host_tier(model: LoadedModel, config: EngineConfig, plan: MemoryPlan) -> HostTier:
    """Pages at rest: in RAM, or in memory that a GPU shares.

    Raises:
        ConfigError: Unified memory is wanted where there is none, or for several devices.
    """
    is_cuda = model.device.type == "cuda"
    shared = None
    if is_cuda and config.pager == "unified":
        if len(set(model.layer_devices)) > 1:
            raise ConfigError(
                "unified memory serves one GPU, and the model lies on several",
                "Leave --pager at explicit, or choose one GPU with --device cuda:N.",
            )
        shared = ManagedMemory(plan.host_pages * model.geometry.page_bytes, model.device)
    return HostTier(
        model.geometry, plan.host_pages, pinned=is_cuda and shared is None, shared=shared
    )
