"""A model is found by path or hub id, and the network is asked only when it has to be."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest

from engine.errors import KVError, ModelError
from engine.model.load import load_model


@pytest.mark.parametrize("source", ["/nowhere/model", "./nowhere", "nowhere.gguf"])
def test_a_missing_path_is_named(source: str) -> None:
    with pytest.raises(ModelError, match=f"no model at {source}"):
        load_model(source)


def cache_of(folder: Path, hub_id: str, cache: Path) -> None:
    """Lay a model folder out as the hub's cache has it."""
    commit = "0" * 40
    repo = cache / f"models--{hub_id.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots").mkdir()
    folder.rename(repo / "snapshots" / commit)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    return cache


@pytest.mark.parametrize("offline", [True, False])
def test_a_cached_hub_model_needs_no_network(
    offline: bool, folder: Path, hub_cache: Path, no_network: None
) -> None:
    cache_of(folder, "org/tiny", hub_cache)
    assert load_model("org/tiny", offline=offline).name == "org/tiny"


def test_an_incomplete_cached_model_is_not_served_offline(folder: Path, hub_cache: Path) -> None:
    (folder / "model.safetensors").unlink()
    cache_of(folder, "org/tiny", hub_cache)
    with pytest.raises(ModelError, match="org/tiny is not complete in the hub's cache"):
        load_model("org/tiny", offline=True)


@pytest.mark.parametrize("hub_id", ["org/none", "none"])
def test_an_unknown_hub_model_is_named_offline(hub_id: str, hub_cache: Path) -> None:
    with pytest.raises(ModelError, match=f"{hub_id} is not complete in the hub's cache"):
        load_model(hub_id, offline=True)


def test_an_unreachable_hub_is_named(hub_cache: Path) -> None:
    """The test run sets HF_HUB_OFFLINE: to the hub's client that is a network that fails."""
    with pytest.raises(ModelError, match="org/none is not in the hub's cache and could not be"):
        load_model("org/none")


@pytest.mark.parametrize("name", ["a b c", "too/many/slashes", "--x"])
def test_a_name_that_cannot_be_one_is_named(name: str, hub_cache: Path) -> None:
    with pytest.raises(KVError, match="unknown model"):
        load_model(name)
