"""The tensors of the tiers: where a page lies, as a view and as bytes."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.tiers.device import DeviceTier
from engine.tiers.disk import PageBuffer
from engine.tiers.host import HostTier
from engine.types import KVGeometry, Part, SlotId

GEOMETRY = KVGeometry(2, 3, 4, "float32", page_tokens=8, segment_tokens=32)
CPU = torch.device("cpu")


def device(slots: int = 5) -> DeviceTier:
    tier = DeviceTier(GEOMETRY, slots, [CPU, CPU])
    tier.arenas[CPU].zero_()
    return tier


def host(slots: int = 5) -> HostTier:
    tier = HostTier(GEOMETRY, slots, pinned=False)
    tier._arena.zero_()
    return tier


def test_neighbouring_slots_of_the_device_are_one_view() -> None:
    tier = device()
    for slot in range(3):
        tier.view(1, Part.VALUES, SlotId(slot), 0, 8).fill_(slot + 1)
    run = tier.view(1, Part.VALUES, SlotId(0), 4, 16)
    assert run.shape == (3, 16, 4)
    assert run[2, :, 3].tolist() == [1.0] * 4 + [2.0] * 8 + [3.0] * 4
    assert not tier.view(1, Part.KEYS, SlotId(0), 0, 40).any()
    assert not tier.view(0, Part.VALUES, SlotId(0), 0, 40).any()


def test_copying_a_page_copies_every_layer_and_nothing_else() -> None:
    for tier in (device(), host()):
        for layer in range(2):
            for half in Part:
                tier.view(layer, half, SlotId(1), 0, 8).fill_(10 * layer + half + 1)
        tier.copy(SlotId(1), SlotId(3))
        for layer in range(2):
            for half in Part:
                value = 10 * layer + half + 1
                assert tier.view(layer, half, SlotId(3), 0, 8).eq(value).all()
                assert not tier.view(layer, half, SlotId(2), 0, 8).any()
                assert not tier.view(layer, half, SlotId(4), 0, 8).any()


def test_layers_on_several_devices_have_their_pages_there() -> None:
    """A second name of the CPU stands for a second device."""
    other = torch.device("cpu", 0)
    geometry = replace(GEOMETRY, num_layers=5)
    tier = DeviceTier(geometry, 3, [CPU, CPU, other, CPU, other])
    assert [len(arena) for arena in tier.arenas.values()] == [3, 2]
    for layer in range(5):
        tier.view(layer, Part.KEYS, SlotId(1), 0, 8).fill_(layer + 1)
    first, second = (tier.arenas[name][:, Part.KEYS, 0, 8, 0].tolist() for name in (CPU, other))
    assert first == [1.0, 2.0, 4.0] and second == [3.0, 5.0]
    tier.copy(SlotId(1), SlotId(2))
    for layer in range(5):
        assert tier.view(layer, Part.KEYS, SlotId(2), 0, 8).eq(layer + 1).all()


def test_the_bytes_of_a_host_page_are_in_the_order_of_a_page_at_rest() -> None:
    """`[num_layers, 2, num_kv_heads, page_tokens, head_dim]`, as the session file has it."""
    tier = host()
    expected = torch.arange(GEOMETRY.page_bytes // 4, dtype=torch.float32)
    shaped = expected.view(2, 2, 3, 8, 4)
    for layer in range(2):
        for half in Part:
            tier.view(layer, half, SlotId(2), 0, 8).copy_(shaped[layer, half])
    memory = tier.bytes_of(SlotId(2))
    assert bytes(memory) == expected.numpy().tobytes()
    memory[:4] = b"\0\0\x80\x3f"  # writing through it: 1.0
    assert tier.view(0, Part.KEYS, SlotId(2), 0, 1)[0, 0, 0] == 1.0


def test_neighbouring_host_slots_are_given_page_by_page() -> None:
    tier = host()
    for slot in range(5):
        tier.view(1, Part.KEYS, SlotId(slot), 0, 8).fill_(slot)
    pages = tier.pages(1, Part.KEYS, SlotId(1), 3)
    assert pages.shape == (3, 3, 8, 4)
    assert pages[:, 0, 0, 0].tolist() == [1.0, 2.0, 3.0]


def test_a_page_buffer_is_the_same_memory_as_tensor_and_bytes() -> None:
    buffer = PageBuffer(GEOMETRY, 4)
    assert buffer.pages.shape == (4, 3, 8, 4)
    buffer.pages[2].fill_(1.0)
    assert bytes(buffer.bytes_of(2, 1)) == b"\0\0\x80\x3f" * (3 * 8 * 4)
    assert not any(bytes(buffer.bytes_of(0, 2))) and not any(bytes(buffer.bytes_of(3, 1)))
