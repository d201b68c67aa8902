"""`kvcli doctor` about GPUs: what is said of facts that a machine with GPUs would give."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kvcli.commands.check import Check, Mark
from kvcli.commands.devices import device_checks
from kvcli.gpu_facts import GpuFacts, LinkFacts, MachineFacts, gather_facts, parse_links

GPU = GpuFacts(
    name="H200",
    total_bytes=141 * 10**9,
    free_bytes=140 * 10**9,
    capability=(9, 0),
    link=LinkFacts(5, 16, 16),
    shares_memory=True,
    reads_pageable=False,
)
ONE = MachineFacts((GPU,), triton="3.7.1", bindings="13.5.0", kvikio=None, bypasses_ram=None)


def said(facts: MachineFacts) -> dict[str, Check]:
    return {check.name: check for check in device_checks(facts)}


def test_a_gpu_is_told_with_its_capability_its_room_and_its_link() -> None:
    found = said(ONE)
    assert "H200, compute capability 9.0, 140 GB of 141 GB free" in found["cuda:0"].found
    assert "PCIe 5 x16, 63.0 GB/s one way" in found["cuda:0"].found
    assert "device map" not in found
    assert all(check.mark is Mark.GOOD for check in found.values())


def test_a_link_that_lacks_lanes_is_told() -> None:
    narrow = replace(GPU, link=LinkFacts(4, 8, 16))
    assert "PCIe 4 x8 of the x16 that" in said(replace(ONE, gpus=(narrow,)))["cuda:0"].found
    unknown = replace(GPU, link=None)
    assert "not known" in said(replace(ONE, gpus=(unknown,)))["cuda:0"].found


def test_without_bindings_copies_are_slower_and_memory_is_not_shared() -> None:
    found = said(replace(ONE, bindings=None))
    assert found["copies"].mark is Mark.NOTE and "cuda-bindings" in found["copies"].advice
    assert "not to be had" in found["--pager unified"].found


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (GPU, "to be had, with managed memory"),
        (replace(GPU, reads_pageable=True), "reads all other memory"),
        (replace(GPU, shares_memory=False), "cannot share memory"),
    ],
)
def test_whether_memory_can_be_shared_is_told_with_the_reason(gpu: GpuFacts, words: str) -> None:
    assert words in said(replace(ONE, gpus=(gpu,)))["--pager unified"].found


def test_kernels_are_told_with_the_reason_where_there_are_none() -> None:
    assert "Triton 3.7.1" in said(ONE)["kernels"].found
    assert "not installed" in said(replace(ONE, triton=None))["kernels"].found
    old = said(replace(ONE, gpus=(replace(GPU, name="T4", capability=(7, 5)),)))["kernels"]
    assert old.mark is Mark.NOTE and "PyTorch on T4" in old.found and "8.0" in old.found


def test_several_gpus_are_named_and_how_they_share_a_model_is_told() -> None:
    found = said(replace(ONE, gpus=(GPU, replace(GPU, name="L40S"))))
    assert "H200" in found["cuda:0"].found and "L40S" in found["cuda:1"].found
    assert "all 2" in found["device map"].found


@pytest.mark.parametrize(("bypasses", "words"), [(True, "would bypass"), (False, "as well")])
def test_why_storage_is_not_read_directly_is_told(bypasses: bool, words: str) -> None:
    assert "checked by the CPU" in said(ONE)["GPUDirect storage"].found
    found = said(replace(ONE, kvikio="26.10.0", bypasses_ram=bypasses))["GPUDirect storage"].found
    assert "26.10.0" in found and words in found


def test_links_are_read_by_the_name_of_the_gpu() -> None:
    """Some machines and virtual GPUs tell nothing of a link."""
    answer = "GPU-1-2, 5, 16, 16\nGPU-3, [N/A], [N/A], [N/A]\n\n"
    assert parse_links(answer) == {"GPU-1-2": LinkFacts(5, 16, 16)}


def test_facts_are_gathered_without_a_gpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert gather_facts().gpus == ()


@pytest.mark.gpu
def test_facts_of_a_gpu_are_asked_for_without_a_failure() -> None:
    facts = gather_facts()
    assert facts.gpus and facts.gpus[0].free_bytes <= facts.gpus[0].total_bytes
    assert list(device_checks(facts))
