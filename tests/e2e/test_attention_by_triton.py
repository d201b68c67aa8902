"""An engine whose attention Triton computes says what torch says."""

from __future__ import annotations

import pytest
from engine_kit import RESIDENT, SMALL_DEVICE, Budget, listen, new_file, open_engine, text, tiny

from kernels import attention

pytest.importorskip("triton")


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
@pytest.mark.parametrize("budget", [RESIDENT, SMALL_DEVICE], ids=["resident", "streamed"])
def test_greedy_tokens_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path, architecture: str, budget: Budget
) -> None:
    """Prefill over several parts and decoding, by the interpreter of Triton."""
    model, heard = tiny(architecture), {}
    for triton in (False, True):
        monkeypatch.setattr(attention, "by_triton", lambda _, chosen=triton: chosen)
        file = new_file(tmp_path / f"{triton}.kv", model)
        with open_engine(model, budget, num_tokens=220, file=file) as engine:
            sequence = engine.new_sequence()
            heard[triton] = listen(engine, sequence, text(190), 4)
    assert heard[True].tokens == heard[False].tokens
    for found, expected in zip(heard[True].logits, heard[False].logits, strict=True):
        assert (found - expected).abs().max() < 1e-3
    assert not heard[True].same_bits(heard[False]), "one of them was not run"
