"""Loading tells the truth about a model, is quiet, and fails in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import ARCHITECTURES, END, PAD, make_config_only, make_tiny_gguf, make_tiny_model

from engine.errors import ConfigError, ModelError
from engine.model import fused, load, packed
from engine.model.checkpoint import Placement
from engine.model.hook import LayerSpec
from engine.model.load import LoadedModel, choose_device, load_model, place_weights
from engine.model.packed import WeightForm
from engine.types import KVGeometry


def test_tells_the_shape_of_the_model(folder: Path) -> None:
    loaded = load_model(folder, page_tokens=16, segment_tokens=64)
    assert loaded.name == "tiny"
    assert loaded.geometry == KVGeometry(3, 2, 16, "bfloat16", 16, 64)
    assert loaded.layers == (LayerSpec(None, None, 0.25, 0),) * 3
    assert (loaded.num_heads, loaded.vocab_size, loaded.window) == (4, 300, 2048)
    assert loaded.device == torch.device("cpu")
    assert loaded.warnings == ()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_shape_without_the_self_check_is_the_same(architecture: str, tmp_path: Path) -> None:
    make_tiny_model(tmp_path, architecture)
    checked, unchecked = load_model(tmp_path), load_model(tmp_path, self_check=False)
    assert unchecked.geometry == checked.geometry
    assert unchecked.layers == checked.layers


def matrix_dtypes(loaded: LoadedModel) -> set[torch.dtype]:
    """Of the weights that are matrices: fused norms count in fp32, whatever the form."""
    return {weight.dtype for weight in loaded.model.parameters() if weight.ndim == 2}


def test_keeps_the_dtype_of_the_checkpoint(folder: Path) -> None:
    loaded = load_model(folder, weight_form=WeightForm.OWN)
    assert loaded.dtype == torch.bfloat16
    assert matrix_dtypes(loaded) == {torch.bfloat16}


def test_converts_to_a_given_dtype(folder: Path) -> None:
    loaded = load_model(folder, dtype="float32")
    assert loaded.geometry.dtype == "float32"
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("form", [WeightForm.WIDE, WeightForm.PACKED])
def test_the_form_of_the_weights_changes_neither_kv_nor_identity(
    form: WeightForm, folder: Path
) -> None:
    """A session read on a CPU with bf16 products goes on, byte for byte, on one without."""
    narrow = load_model(folder, weight_form=WeightForm.OWN)
    reformed = load_model(folder, weight_form=form)
    assert reformed.weight_form is form
    assert reformed.dtype == torch.float32
    assert reformed.geometry == narrow.geometry
    assert reformed.geometry.dtype == "bfloat16"
    assert reformed.matrix_params == narrow.matrix_params
    for name in ("weights", "tokenizer", "template", "rope"):
        assert getattr(reformed, f"{name}_fingerprint") == getattr(narrow, f"{name}_fingerprint")


@pytest.mark.parametrize(
    ("multiplies", "packs", "times", "expected"),
    [
        (False, True, 3, WeightForm.PACKED),
        (False, False, 100, WeightForm.WIDE),
        (False, False, 3, WeightForm.OWN),  # in little memory: slow is better than nothing
        (True, True, 100, WeightForm.OWN),
    ],
)
def test_weights_take_the_fastest_form_that_there_is_room_for(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    multiplies: bool,
    packs: bool,
    times: int,
    expected: WeightForm,
) -> None:
    """bf16 products without instructions for them took 8 times as long as fp32 ones."""
    narrow = load_model(folder, weight_form=WeightForm.OWN)
    weights = sum(weight.nbytes for weight in narrow.model.parameters())
    memory = SimpleNamespace(available=weights * times)
    monkeypatch.setattr(load, "multiplies_bf16", lambda: multiplies)
    monkeypatch.setattr(packed, "can_pack", lambda: packs)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert load_model(folder).weight_form is expected


def test_matrix_params_are_what_a_token_is_multiplied_with(folder: Path) -> None:
    """Of each of three layers: queries and output 64 x 64, keys and values 64 x 32, three of
    64 x 96. Neither embeddings nor the head."""
    assert load_model(folder).matrix_params == 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)


def test_a_kind_of_layer_that_is_not_fused_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_model(folder).unfused == ()
    monkeypatch.setattr(fused, "KNOWN", {})
    loaded = load_model(folder)
    assert loaded.unfused == ("LlamaDecoderLayer",)
    assert "LlamaDecoderLayer is not known" in loaded.warnings[0]


def test_every_token_that_ends_a_turn_is_an_end(folder: Path) -> None:
    loaded = load_model(folder)
    ends = loaded.tokenizer.convert_tokens_to_ids([END, PAD])
    assert loaded.eos_ids == frozenset(ends)


def test_yarn_extends_the_window(tmp_path: Path) -> None:
    """The config keeps the window it was trained with, as Qwen's model cards have it."""
    scaling = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    make_tiny_model(tmp_path, "qwen2", max_position_embeddings=512, rope_parameters=scaling)
    assert load_model(tmp_path).window == 2048


def test_identity_is_the_same_for_the_same_files(folder: Path) -> None:
    first, second = load_model(folder), load_model(folder)
    names = ("weights", "tokenizer", "template", "rope")
    assert [getattr(first, f"{name}_fingerprint") for name in names] == [
        getattr(second, f"{name}_fingerprint") for name in names
    ]


def test_other_weights_are_another_identity(folder: Path, tmp_path: Path) -> None:
    other = load_model(make_tiny_model(tmp_path / "other", "llama", dtype="bfloat16", seed=1))
    same = load_model(folder)
    assert other.weights_fingerprint != same.weights_fingerprint
    assert other.tokenizer_fingerprint == same.tokenizer_fingerprint
    assert other.rope_fingerprint == same.rope_fingerprint


def test_says_nothing_and_touches_no_network(
    folder: Path, capfd: pytest.CaptureFixture[str], no_network: None
) -> None:
    capfd.readouterr()
    load_model(folder)
    assert capfd.readouterr() == ("", "")


def test_warnings_are_returned(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """transformers warns about an end token outside the vocabulary."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 5000}))
    capfd.readouterr()
    loaded = load_model(folder)
    assert any("eos_token_id" in warning for warning in loaded.warnings)
    assert capfd.readouterr() == ("", "")


def test_a_string_path_works_too(folder: Path) -> None:
    assert load_model(str(folder)).name == "tiny"


def test_a_gguf_file_loads_dense_and_quietly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = make_tiny_gguf(tmp_path / "small.gguf")
    capfd.readouterr()
    loaded = load_model(path, weight_form=WeightForm.OWN)
    assert capfd.readouterr() == ("", "")
    assert loaded.name == "small"
    assert matrix_dtypes(loaded) == {torch.bfloat16}
    assert loaded.tokenizer.decode(loaded.tokenizer("the bridge").input_ids) == "the bridge"


def cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def scribble(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not a tensor in sight" * 10)


def drop_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def reshape_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(7)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def name_missing_shard(folder: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def break_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{")


def remove(*names: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return act


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut weights": (cut, "model.safetensors is damaged or cut short"),
    "foreign weights": (scribble, "model.safetensors is damaged or cut short"),
    "no weights": (remove("model.safetensors"), "model.safetensors is missing"),
    "missing tensor": (drop_tensor, r"1 tensors are not in its files \(model.layers.1.mlp.up_proj"),
    "wrong shape": (reshape_tensor, "its weights cannot be loaded"),
    "missing shard": (
        name_missing_shard,
        "weight file model-00002-of-00002.safetensors is missing",
    ),
    "damaged index": (break_index, "index.json is damaged"),
    "no tokenizer": (remove("tokenizer.json"), "no tokenizer in"),
    "damaged tokenizer": (write("tokenizer.json", "{"), "its tokenizer cannot be read"),
    "no config": (remove("config.json"), "config.json is missing"),
    "damaged config": (write("config.json", "{"), "its config cannot be read"),
    "foreign config": (write("config.json", '{"model_type": "warp"}'), "config cannot be read"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named_in_one_line(
    case: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damage, message = DAMAGE[case]
    damage(folder)
    capfd.readouterr()
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    assert "\n" not in caught.value.message and len(caught.value.message) < 400
    assert caught.value.advice
    assert capfd.readouterr() == ("", "")


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        load_model(tmp_path)


def test_a_file_that_is_no_gguf_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("GGU")
    with pytest.raises(ModelError, match=r"notes.gguf is not a GGUF file"):
        load_model(path)


def test_a_damaged_gguf_is_named(tmp_path: Path) -> None:
    path = make_tiny_gguf(tmp_path / "small.gguf")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ModelError, match="small: its config cannot be read"):
        load_model(path)


def test_weights_beyond_the_memory_are_refused_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of 8 billion parameters, of which only the config is there."""
    fields = {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336}
    folder = make_config_only(tmp_path / "big", "llama", dtype="bfloat16", **fields)
    save_file({}, folder / "model.safetensors", {"format": "pt"})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4 * 10**9))
    with pytest.raises(ModelError, match=r"its weights need 1\d\.\d GB, 4.0 GB are free"):
        load_model(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int3"}, "unknown dtype 'int3'"),
        ({"device": "toaster"}, "unknown device 'toaster'"),
        ({"device": "mps"}, "device 'mps' is not supported"),
        ({"device": "cuda:99"}, "no device cuda:99"),
    ],
)
def test_impossible_options_are_named(
    options: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_model(tmp_path, **options)  # type: ignore[arg-type]
    assert caught.value.advice


def test_auto_takes_what_is_there() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


CUDA = torch.device("cuda", 0)


def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs with 10 and 20 GB free, and 8 GB of RAM."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    free = {0: 10 * 10**9, 1: 20 * 10**9, CUDA: 10 * 10**9}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index], 24 * 10**9))
    memory = SimpleNamespace(available=8 * 10**9, total=16 * 10**9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


@pytest.mark.parametrize(
    ("gigabytes", "may_spread", "expected"),
    [
        (8, True, Placement({"": "cuda:0"})),
        (12, True, Placement("auto", {0: 8_500_000_000, 1: 17 * 10**9, "cpu": 8 * 10**9})),
        (12, False, Placement("auto", {0: 8_500_000_000, "cpu": 8 * 10**9})),
    ],
)
def test_weights_spread_over_gpus_only_where_one_was_not_chosen(
    monkeypatch: pytest.MonkeyPatch, gigabytes: int, may_spread: bool, expected: Placement
) -> None:
    """A share of every device is left to pages and activations."""
    two_gpus(monkeypatch)
    assert place_weights("m", gigabytes * 10**9, CUDA, may_spread=may_spread) == expected


def test_weights_too_large_for_the_chosen_gpu_and_ram_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two_gpus(monkeypatch)
    with pytest.raises(ModelError, match=r"need 20.0 GB, 18.0 GB are free"):
        place_weights("m", 20 * 10**9, CUDA, may_spread=False)
    assert place_weights("m", 20 * 10**9, CUDA, may_spread=True).device_map == "auto"


def test_a_layer_is_where_its_keys_come_from(folder: Path) -> None:
    """Said by what the hook sees, whatever put the weights there."""
    assert load_model(folder).layer_devices == (torch.device("cpu"),) * 3
