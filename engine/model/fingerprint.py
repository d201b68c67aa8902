"""Fingerprints: short digests that tell whether a saved session belongs to a model.

Owns what counts as the same weights, tokenizer and chat template. Equal content gives equal
digests wherever the tensors lie; knows nothing of sessions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from accelerate.utils import align_module_device
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

WHOLE_BYTES = 1 << 20
"""Tensors up to this size are read whole."""

BLOCKS, BLOCK_BYTES = 16, 64 << 10
"""Of larger tensors, this many evenly spaced blocks are read, the first and the last included."""


def weights_fingerprint(model: PreTrainedModel) -> str:
    """Digest name, shape, dtype and content (sampled, if large) of every stored tensor."""
    digest = xxhash.xxh3_128()
    for name, tensor in _stored_tensors(model):
        digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype};".encode())
        for piece in _sample(tensor):
            content: Any = piece.numpy()
            digest.update(content)
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """Digest everything that decides which ids a text gets."""
    return xxhash.xxh3_128_hexdigest(tokenizer.backend_tokenizer.to_str().encode())


def template_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """Digest the chat template, or the fact that there is none."""
    return xxhash.xxh3_128_hexdigest(json.dumps(tokenizer.chat_template).encode())


def _stored_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield what a checkpoint holds: parameters and persistent buffers, tied ones once."""
    tied = set(model.all_tied_weights_keys)
    for path, module in model.named_modules():
        with _materialised(module):
            buffers = (
                (name, buffer)
                for name, buffer in module.named_buffers(recurse=False)
                if name not in module._non_persistent_buffers_set
            )
            for name, tensor in (*module.named_parameters(recurse=False), *buffers):
                full_name = f"{path}.{name}" if path else name
                if full_name not in tied:
                    yield full_name, tensor.detach()


def _materialised(module: nn.Module) -> AbstractContextManager[None]:
    """Bring a module's offloaded tensors to the CPU for as long as they are read."""
    if any(tensor.is_meta for tensor in module.parameters(recurse=False)):
        return align_module_device(module, torch.device("cpu"))  # type: ignore[no-any-return]
    return nullcontext()


def _sample(tensor: Tensor) -> list[Tensor]:
    """Return the bytes that stand for a tensor, in one or more pieces on the CPU."""
    flat = tensor.reshape(-1).view(torch.uint8)
    last = flat.numel() - BLOCK_BYTES
    if flat.numel() <= WHOLE_BYTES:
        return [flat.cpu()]
    starts = [last * index // (BLOCKS - 1) for index in range(BLOCKS)]
    blocks = [flat[start : start + BLOCK_BYTES] for start in starts]
    return blocks if flat.device.type == "cpu" else [torch.cat(blocks).cpu()]
