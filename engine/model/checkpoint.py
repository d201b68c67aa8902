"""Reading a checkpoint through transformers: config, empty model, tokenizer, weights.

Owns every call that reads files with transformers. Quiet: no progress bars and nothing on stderr;
warnings are handed to the caller. Whatever transformers raises becomes one line.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from engine.errors import KVError, ModelError
from engine.model.source import ModelFiles, first_line

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

NOT_SERVED = "Use a causal language model that transformers knows, without code of its own."


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights go, as accelerate takes it."""

    device_map: str | dict[str, str] | None
    """"auto" spreads them evenly over what `max_memory` names; None is plain CPU."""
    max_memory: dict[int | str, int] | None = None
    """Most bytes by CUDA device index or "cpu"; None: whatever is free."""


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Silence transformers and Python warnings for a while.

    Yields:
        A list that receives the warnings, one line each, none twice.
    """
    from transformers.utils import logging as hf_logging

    notes: list[str] = []
    logger = logging.getLogger("transformers")
    handlers, bars = logger.handlers[:], hf_logging.is_progress_bar_enabled()
    logger.handlers = [_Collector(notes)]
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield notes
            _collect(notes, (str(warning.message) for warning in caught))
    finally:
        logger.handlers = handlers
        if bars:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def read_config(files: ModelFiles) -> PretrainedConfig:
    """Read the config of a folder or a GGUF file."""
    from transformers import AutoConfig

    with _one_line(files, "its config cannot be read", NOT_SERVED):
        config = AutoConfig.from_pretrained(files.folder, **_common(files))
    return config  # type: ignore[no-any-return]


def empty_model(files: ModelFiles, config: PretrainedConfig) -> PreTrainedModel:
    """Build the model without memory for its weights, on the meta device."""
    from transformers import AutoModelForCausalLM

    with (
        _one_line(files, "no causal language model can be built from its config", NOT_SERVED),
        torch.device("meta"),
    ):
        build: Any = AutoModelForCausalLM.from_config
        model: PreTrainedModel = build(config, attn_implementation="eager")
    return model


def read_tokenizer(files: ModelFiles) -> PreTrainedTokenizerFast:
    """Read the tokenizer.

    Raises:
        ModelError: It is missing, damaged, or not backed by the tokenizers library.
    """
    from transformers import AutoTokenizer

    with _one_line(files, "its tokenizer cannot be read", "Fetch the model again."):
        tokenizer: Any = AutoTokenizer.from_pretrained(files.folder, **_common(files))
    if not tokenizer.is_fast:
        raise ModelError(
            f"{files.name}: its tokenizer has no tokenizer.json",
            "Save it once with transformers' fast tokenizer.",
        )
    return tokenizer  # type: ignore[no-any-return]


def read_model(
    files: ModelFiles,
    config: PretrainedConfig,
    *,
    dtype: torch.dtype | None,
    placement: Placement,
) -> PreTrainedModel:
    """Read the weights, in the checkpoint's own dtype unless one is given.

    Args:
        files: Where they are.
        config: As `read_config` returned it.
        dtype: To convert to; a GGUF file is dequantized to it, bfloat16 by default.
        placement: Where they go.

    Returns:
        A model for inference with eager attention.

    Raises:
        ModelError: Damaged or incomplete weights, or not enough memory.
    """
    from transformers import AutoModelForCausalLM, GgufConfig

    options: dict[str, Any] = _common(files) | {
        "device_map": placement.device_map,
        "max_memory": placement.max_memory,
    }
    if files.gguf is None:
        options |= {"dtype": dtype or "auto", "use_safetensors": True}
    else:
        options |= {
            "dtype": dtype or torch.bfloat16,
            "quantization_config": GgufConfig(dequantize=True),
        }
    with (
        _one_line(files, "its weights cannot be loaded", "Fetch the model again."),
        # The bar of the GGUF reader has no off switch.
        nullcontext() if files.gguf is None else redirect_stderr(io.StringIO()),
    ):
        read: Any = AutoModelForCausalLM.from_pretrained
        model, report = read(
            files.folder,
            config=config,
            attn_implementation="eager",
            output_loading_info=True,
            **options,
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{files.name}: {len(missing)} tensors are not in its files ({missing[0]}, ...)",
            "Fetch the model again.",
        )
    return model.requires_grad_(False)  # type: ignore[no-any-return]


def _common(files: ModelFiles) -> dict[str, Any]:
    """Return the arguments of every read: this folder only, and no code from it."""
    return {
        "gguf_file": files.gguf,
        "local_files_only": True,
        "trust_remote_code": False,
    }


@contextmanager
def _one_line(files: ModelFiles, what: str, advice: str) -> Iterator[None]:
    """Turn whatever a library raises while reading into one line."""
    try:
        yield
    except KVError:
        raise
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise ModelError(
            f"{files.name}: out of memory while loading",
            "Free memory, choose a smaller model, or load in bfloat16.",
        ) from error
    except Exception as error:
        raise ModelError(f"{files.name}: {what} ({first_line(error)})", advice) from error


class _Collector(logging.Handler):
    """Keeps warnings instead of printing them."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        _collect(self.notes, [record.getMessage()])


def _collect(notes: list[str], messages: Iterator[str] | list[str]) -> None:
    """Add messages as single lines, none twice."""
    for message in messages:
        line = " ".join(message.split())
        if line not in notes:
            notes.append(line)
