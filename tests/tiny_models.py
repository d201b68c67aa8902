"""Tiny random models in complete folders: config, weights, tokenizer, chat template.

Deterministic: the same arguments give the same bytes. Weights are scaled so that attention is
peaked, positions matter, and greedy output wanders over the vocabulary.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TRAINING_LINES = (
    "The bridge was inspected in spring and found to be sound.",
    "def add(first, second): return first + second",
    "Page twelve lists the bearings, the joints and the drains.",
    "Who paid for the repair of the northern pier?",
    "<document path='report.pdf'>",
)

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}

SLIDING_MIX = ["sliding_attention", "full_attention", "sliding_attention"]

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": 32},
    "gemma2": {
        "head_dim": 16,
        "sliding_window": 32,
        "attn_logit_softcapping": 5.0,
        "query_pre_attn_scalar": 16,
        "layer_types": SLIDING_MIX,
    },
    "gemma3_text": {
        "head_dim": 16,
        "sliding_window": 32,
        "query_pre_attn_scalar": 16,
        "layer_types": SLIDING_MIX,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1_000_000.0},
        },
    },
    "phi3": {"rope_parameters": {"rope_theta": 10_000.0, "partial_rotary_factor": 0.5}},
}
"""The supported architectures, by transformers' `model_type`, with what sets each apart."""


def make_tiny_model(
    folder: Path, architecture: str, *, dtype: str = "float32", seed: int = 0, **overrides: Any
) -> Path:
    """Save a complete tiny model.

    Args:
        folder: Made if missing.
        architecture: A key of `ARCHITECTURES`, or any causal `model_type` with `SHAPE`'s fields.
        dtype: Of the saved weights.
        seed: Of the weights.
        **overrides: Fields of the config.

    Returns:
        `folder`.
    """
    config = tiny_config(architecture, **overrides)
    model = AutoModelForCausalLM.from_config(config)
    fill_weights(model, seed)
    model.generation_config = GenerationConfig(eos_token_id=config.eos_token_id)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def make_config_only(folder: Path, architecture: str, **fields: Any) -> Path:
    """Save a folder with a config and a tokenizer but no weights.

    Args:
        folder: Made if missing.
        architecture: Any `model_type` known to transformers.
        **fields: Fields of the config; nothing else is set.

    Returns:
        `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = AutoConfig.for_model(architecture, **fields)
    (folder / "config.json").write_text(json.dumps(config.to_dict(), default=str))
    tiny_tokenizer().save_pretrained(folder)
    return folder


def tiny_config(architecture: str, **overrides: Any) -> PretrainedConfig:
    """Return the config of a tiny model; `overrides` win over the architecture's own fields."""
    tokenizer = tiny_tokenizer()
    fields = SHAPE | ARCHITECTURES.get(architecture, {})
    ids = {
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    return AutoConfig.for_model(architecture, **(fields | ids | overrides))


def fill_weights(model: PreTrainedModel, seed: int = 0) -> None:
    """Overwrite every weight with seeded noise of a size that makes a lively model."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = model.get_input_embeddings().weight
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 1:
                weight.add_(0.1 * noise)
            elif weight is embeddings:
                weight.copy_(0.3 * noise)
            else:
                weight.copy_(2.0 * noise / weight.shape[-1] ** 0.5)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of 300 entries: every text has ids, and ids give the text back."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TRAINING_LINES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make_tiny_gguf(path: Path, seed: int = 0) -> Path:
    """Save a tiny Llama model as a GGUF file in half precision, tokenizer included.

    Returns:
        `path`.
    """
    config = tiny_config("llama", bos_token_id=0)
    model = AutoModelForCausalLM.from_config(config)
    fill_weights(model, seed)
    writer = gguf.GGUFWriter(path, "llama")
    head_dim = config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        stem, _, ending = name.rpartition(".")
        kind = torch.float16 if weight.ndim > 1 else torch.float32
        writer.add_tensor(f"{names.get_name(stem)}.{ending}", weight.to(kind).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = tiny_tokenizer()
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    special = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([special[token not in (PAD, START, END)] for token, _ in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(CHAT_TEMPLATE)
