"""The engine with its pages moved by Triton kernels, in the interpreter: the same bits as torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import (
    RESIDENT,
    SMALL,
    SMALL_DEVICE,
    Budget,
    Heard,
    listen,
    new_file,
    open_engine,
    text,
    tiny,
)

from kernels import pages, triton_pages

PROMPT, ANSWER = 180, 3


def said(architecture: str, budget: Budget, path: Path) -> Heard:
    model = tiny(architecture, "bfloat16")
    with open_engine(model, budget, num_tokens=256, file=new_file(path, model)) as engine:
        return listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)


# rows of a page that no token has filled yet may be no numbers
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize(
    ("architecture", "budget"),
    [("llama", SMALL_DEVICE), ("phi3", SMALL), ("gemma3_text", SMALL_DEVICE)],
    ids=["llama-ram", "phi3-disk", "gemma3-ram"],
)
def test_pages_moved_by_triton_give_the_same_bits(
    architecture: str, budget: Budget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device tier is too small, so pages of RAM and of disk are promoted while it answers."""
    wanted = said(architecture, RESIDENT, tmp_path / "torch.kv")
    called: set[str] = set()

    def counted(name: str) -> None:
        kernel = getattr(triton_pages, name)

        def call(*args: object, **options: object) -> None:
            called.add(name)
            kernel(*args, **options)

        monkeypatch.setattr(triton_pages, name, call)

    for name in ("append", "gather_pages", "rotate_into"):
        counted(name)
    monkeypatch.setattr(pages, "by_triton", lambda device: True)
    heard = said(architecture, budget, tmp_path / "triton.kv")
    assert heard.same_bits(wanted)
    assert called == {"append", "gather_pages", "rotate_into"}
