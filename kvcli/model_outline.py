"""What a model's files say without its weights being loaded: window, KV geometry, tokenizer.

Owns the reading of `config.json` for a dry run. The engine's loader decides for itself and checks
what this only reads. Needs no torch for a model folder; a `.gguf` is read through transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import ModelError
from engine.model.source import ModelFiles, locate
from engine.types import KVGeometry

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelOutline:
    """A model, seen from outside."""

    name: str
    window: int
    """Positions the model was built for, tokens."""
    geometry: KVGeometry
    num_heads: int
    matrix_params: int
    """Parameters that every token is multiplied with; embeddings are looked up instead."""
    tokenizer: Tokenizer

    def count_tokens(self, texts: list[str]) -> int:
        """Tokens of texts as contents: control strings in them count as the text they are."""
        encodings = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return sum(len(encoding) for encoding in encodings)


def outline_model(source: str, *, page_tokens: int, offline: bool) -> ModelOutline:
    """Read a model's outline.

    Args:
        source: As `kvcli.models.resolve` returns it.
        page_tokens: Tokens of a page, for the geometry.
        offline: Never touch the network.

    Raises:
        ModelError: Not found, or its config or tokenizer cannot be read.
    """
    files = locate(source, offline=offline)
    config, tokenizer = _read(files)
    tokenizer.encode_special_tokens = True
    config = config.get("text_config") or config
    try:
        return _outline(files.name, config, tokenizer, page_tokens)
    except KeyError as error:
        raise ModelError(
            f"{files.name}: its config names no {error.args[0]}",
            "Use a model with rotary positions, such as Llama, Qwen or Mistral.",
        ) from error


def _read(files: ModelFiles) -> tuple[dict[str, Any], Tokenizer]:
    vocabulary = files.folder / "tokenizer.json"
    if files.gguf is not None or not vocabulary.is_file():
        from engine.model import checkpoint  # brings torch and transformers

        with checkpoint.quiet():
            config = checkpoint.read_config(files).to_dict()
            return config, checkpoint.read_tokenizer(files).backend_tokenizer
    from tokenizers import Tokenizer  # a tenth of a second that a .kv need not wait for

    try:
        config = json.loads((files.folder / "config.json").read_text(encoding="utf-8"))
        return config, Tokenizer.from_file(str(vocabulary))
    except Exception as error:  # tokenizers raises bare Exception
        raise ModelError(
            f"{files.name}: its config or tokenizer cannot be read", "Fetch the model again."
        ) from error


def _outline(
    name: str, config: dict[str, Any], tokenizer: Tokenizer, page_tokens: int
) -> ModelOutline:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    layers = config["num_hidden_layers"]
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    return ModelOutline(
        name=name,
        window=config["max_position_embeddings"],
        geometry=KVGeometry(
            layers, kv_heads, head_dim, dtype.removeprefix("torch."), page_tokens=page_tokens
        ),
        num_heads=heads,
        matrix_params=layers * (attention + 3 * hidden * config["intermediate_size"]),
        tokenizer=tokenizer,
    )
