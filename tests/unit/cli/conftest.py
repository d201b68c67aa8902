"""What the tests of the command line share: a model folder without weights, and a captured run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kvcli import app

CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
    "dtype": "bfloat16",
}


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A model as a dry run sees it: every byte of a text is a token, the window is 256."""
    folder = tmp_path / "tiny-model"
    folder.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@dataclass(frozen=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str


Kvcli = Callable[..., Ran]


@pytest.fixture
def kvcli(capfd: pytest.CaptureFixture[str]) -> Kvcli:
    """Run a command line in this process."""

    def run(*arguments: object) -> Ran:
        code = app.run([str(argument) for argument in arguments])
        return Ran(code, *capfd.readouterr())

    return run
