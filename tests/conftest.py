"""Every test runs with a fixed seed, a home of its own, and no way to reach a network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none, or where kernels are interpreted."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0":
        return
    for item in wanting:
        item.add_marker(pytest.mark.skip(reason="needs a GPU: tests/gpu.sh"))


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every user directory at a temporary one; the model cache alone is shared."""
    home = tmp_path / "home"
    home.mkdir()
    for name, folder in {
        "HOME": "",
        "XDG_CONFIG_HOME": ".config",
        "XDG_STATE_HOME": ".local/state",
    }.items():
        monkeypatch.setenv(name, str(home / folder))
    for name in list(os.environ):
        if name.startswith("KVCLI_") and name != "KVCLI_CACHE_DIR":
            monkeypatch.delenv(name)
    return home
