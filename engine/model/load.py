"""Loading: from a name or path to a model that runs on position-free keys.

Owns the order of the steps (find, refuse, check memory, read, hook, self-check) and the record of
what was loaded. Knows nothing of pages, tiers or sessions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch
from torch import nn

from engine.errors import ConfigError, ModelError
from engine.model import checkpoint, fingerprint, packed, selfcheck
from engine.model.fused import fuse, layer_kinds
from engine.model.hook import LayerSpec, install
from engine.model.packed import WeightForm
from engine.model.refusal import refusal, refuse_config, refuse_modules, rope_parameters
from engine.model.retrieval import likely_lookup_layers
from engine.model.rope import Rope
from engine.model.selfcheck import LayerTrace
from engine.model.source import check_weights, locate
from engine.types import KVGeometry
from kernels.cpu import multiplies_bf16

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>")
"""Control tokens that end an answer, wherever a vocabulary has them; generation configs of small
and converted models often name only one."""

WIDE_SHARE = 0.5
"""Share of the free RAM that weights in fp32 may take on a CPU that is slow in half precision."""

DEVICE_SHARE = 0.85
"""Share of a device's free memory that weights may take before they spread over more devices."""


@dataclass(slots=True)
class LoadedModel:
    """A hooked model and everything the engine has to know about it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    name: str
    geometry: KVGeometry
    layers: tuple[LayerSpec, ...]
    lookup_layers: tuple[int, ...]
    """Those whose queries and keys tell which page a question looks for, ascending."""
    rope: Rope
    window: int
    """Positions the model was built for."""
    num_heads: int
    vocab_size: int
    """Width of the logits; may exceed the tokenizer's vocabulary."""
    eos_ids: frozenset[int]
    device: torch.device
    """Where token ids go in; with several devices, later layers may be elsewhere."""
    layer_devices: tuple[torch.device, ...]
    """Where each layer computes, and so where its pages belong."""
    dtype: torch.dtype
    """What it computes in; keys and values are kept in `geometry.dtype`."""
    weights_fingerprint: str
    tokenizer_fingerprint: str
    template_fingerprint: str
    rope_fingerprint: str
    warnings: tuple[str, ...]
    """What transformers had to say, and what makes the model slow, one line each."""
    weight_form: WeightForm
    unfused: tuple[str, ...]
    """Kinds of decoder layers that run as transformers has them; empty if all are fused."""
    matrix_params: int
    """Weights that every token of a prompt is multiplied with."""


def load_model(
    source: Path | str,
    *,
    device: str = "auto",
    dtype: str | None = None,
    offline: bool = False,
    page_tokens: int = 64,
    segment_tokens: int = 512,
    self_check: bool = True,
    weight_form: WeightForm | None = None,
    fused: bool = True,
) -> LoadedModel:
    """Load a causal language model and hook it.

    Args:
        source: Folder, `.gguf` file, or hub id.
        device: "auto" (CUDA if there is any, as many as the weights need), "cpu", "cuda" or
            "cuda:N" (that one alone).
        dtype: "bfloat16", "float16", "float32", or None for the checkpoint's own.
        offline: Never touch the network.
        page_tokens: Tokens of a page, for the geometry.
        segment_tokens: Tokens of a segment, for the geometry.
        self_check: Compare logits of the hooked with those of the untouched model.
        weight_form: How weights lie in memory, see `WeightForm`; PACKED is WIDE where they cannot
            be packed, OWN where they are wide already. None: the fastest that there is room for.
        fused: Put fused layers in the place of those that are known.

    Returns:
        The model, ready to be called with `kv_context`.

    Raises:
        ConfigError: Unknown device or dtype.
        ModelError: Not found, incomplete, damaged, or too large for the memory.
        ModelRefused: An architecture that position-free pages cannot serve.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"unknown dtype {dtype!r}", f"Use one of {', '.join(DTYPES)}.")
    target = choose_device(device)
    files = locate(source, offline=offline)
    with checkpoint.quiet() as notes:
        config = checkpoint.read_config(files)
        refuse_config(files.name, config)
        empty = checkpoint.empty_model(files, config)
        refuse_modules(files.name, config, empty)
        if files.gguf is None:
            check_weights(files)
        tokenizer = checkpoint.read_tokenizer(files)
        given = DTYPES[dtype] if dtype else None
        weight_bytes = _weight_bytes(empty, given or _own_dtype(config))
        placement = place_weights(files.name, weight_bytes, target, may_spread=device == "auto")
        model = checkpoint.read_model(files, config, dtype=given, placement=placement)
        weights = fingerprint.weights_fingerprint(model)
        kv_dtype, matrix_params = model.dtype, _matrix_params(model)
        form = _reform(model, weight_form or _best_form(model, weight_bytes))
        rope, traces, unfused = _hook(files.name, model, kv_dtype, self_check, fused)
    layers = tuple(trace.spec for trace in traces)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=files.name,
        geometry=replace(
            _geometry(files.name, model, kv_dtype, traces),
            page_tokens=page_tokens,
            segment_tokens=segment_tokens,
        ),
        layers=layers,
        lookup_layers=likely_lookup_layers(layers),
        rope=rope,
        window=_window(config),
        num_heads=traces[0].heads,
        vocab_size=int(config.vocab_size),
        eos_ids=_eos_ids(model, tokenizer),
        device=traces[0].device,
        layer_devices=tuple(trace.device for trace in traces),
        dtype=kv_dtype if form is WeightForm.OWN else torch.float32,
        weights_fingerprint=weights,
        tokenizer_fingerprint=fingerprint.tokenizer_fingerprint(tokenizer),
        template_fingerprint=fingerprint.template_fingerprint(tokenizer),
        rope_fingerprint=rope.fingerprint,
        warnings=(*notes, *_slow_layers(unfused if fused else ())),
        weight_form=form,
        unfused=unfused,
        matrix_params=matrix_params,
    )


def choose_device(device: str) -> torch.device:
    """Turn a device option into a device that exists.

    Raises:
        ConfigError: No such device.
    """
    if device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {device!r}", "Use auto, cpu, cuda or cuda:N.") from error
    if chosen.type == "cpu":
        return chosen
    if chosen.type != "cuda":
        raise ConfigError(f"device {device!r} is not supported", "Use auto, cpu, cuda or cuda:N.")
    if (chosen.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"no device {device}: this machine has {torch.cuda.device_count()} CUDA devices",
            "Use --device cpu, or auto.",
        )
    return torch.device("cuda", chosen.index or 0)


def _hook(
    name: str, model: PreTrainedModel, kv_dtype: torch.dtype, self_check: bool, fused: bool
) -> tuple[Rope, tuple[LayerTrace, ...], tuple[str, ...]]:
    """Hook the model, fuse and pack its layers, and compare it with the untouched one if asked.

    Returns:
        The rotation, what each layer really hands to attention, and the layers left unfused.
    """
    ids = selfcheck.check_ids(int(model.config.vocab_size))
    expected = selfcheck.stock_logits(model, ids) if self_check else None
    rope = install(model, kv_dtype)
    traces = _in_order(name, model, selfcheck.hooked_logits(model, rope, ids[:1])[1])
    unfused = fuse(model, traces, kv_dtype) if fused else layer_kinds(model)
    packed.pack(model)
    if expected is not None:
        actual = selfcheck.hooked_logits(model, rope, ids)[0]
        selfcheck.compare(name, model.config, expected, actual, kv_dtype)
    return rope, traces, unfused


def _in_order(
    name: str, model: PreTrainedModel, traces: dict[int, LayerTrace]
) -> tuple[LayerTrace, ...]:
    """Check that every layer attended, and return the traces by layer."""
    count = int(model.config.num_hidden_layers)
    if sorted(traces) != list(range(count)):
        reason = f"{len(traces)} of {count} layers call attention; pages need all of them"
        raise refusal(name, model.config, reason)
    return tuple(traces[layer] for layer in range(count))


def _geometry(
    name: str, model: PreTrainedModel, kv_dtype: torch.dtype, traces: tuple[LayerTrace, ...]
) -> KVGeometry:
    """Return the geometry of the KV, which has to be the same in every layer."""
    shapes = {shape for trace in traces for shape in (trace.key_shape, trace.value_shape)}
    if len(shapes) > 1:
        reason = f"layers differ in KV heads and head dimension {sorted(shapes)}"
        raise refusal(name, model.config, reason)
    dtype = str(kv_dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise refusal(name, model.config, f"its dtype {dtype} is not served")
    kv_heads, head_dim = shapes.pop()
    return KVGeometry(len(traces), kv_heads, head_dim, dtype)


def _best_form(model: PreTrainedModel, weight_bytes: int) -> WeightForm:
    """Choose the form in which a model that was loaded computes fastest, and fits."""
    if model.device.type != "cpu" or model.dtype.itemsize >= torch.float32.itemsize:
        return WeightForm.OWN
    if model.dtype is torch.bfloat16 and multiplies_bf16():
        return WeightForm.OWN
    widening = weight_bytes // model.dtype.itemsize * torch.float32.itemsize
    if packed.can_pack() or widening <= psutil.virtual_memory().available * WIDE_SHARE:
        return WeightForm.PACKED
    return WeightForm.OWN


def _reform(model: PreTrainedModel, form: WeightForm) -> WeightForm:
    """Bring weights into a form, as far as they can be; packing itself comes later."""
    if form is WeightForm.PACKED and model.dtype.itemsize < torch.float32.itemsize:
        if packed.narrow(model):
            return form
        form = WeightForm.WIDE
    if form is WeightForm.WIDE:
        model.to(torch.float32)  # type: ignore[arg-type]
        return form
    return WeightForm.OWN


def _slow_layers(kinds: tuple[str, ...]) -> list[str]:
    """Say which layers are not fused although they might have been."""
    return [f"{kind} is not known to be fused: it runs as transformers has it" for kind in kinds]


def _matrix_params(model: PreTrainedModel) -> int:
    """Count the weights that every token of a prompt is multiplied with: matrices, but not those
    of the vocabulary."""
    head: nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    vocabulary = {id(model.get_input_embeddings()), id(head)}
    return sum(
        weight.numel()
        for module in model.modules()
        if id(module) not in vocabulary
        for weight in module.parameters(recurse=False)
        if weight.ndim > 1
    )


def _own_dtype(config: PretrainedConfig) -> torch.dtype:
    """Return the dtype a config names; where it names none, most likely bfloat16."""
    return config.dtype if isinstance(config.dtype, torch.dtype) else torch.bfloat16


def _weight_bytes(empty: PreTrainedModel, dtype: torch.dtype) -> int:
    """Bytes of the weights once loaded."""
    return sum(weight.numel() for weight in empty.parameters()) * dtype.itemsize


def place_weights(
    name: str, weight_bytes: int, device: torch.device, *, may_spread: bool
) -> checkpoint.Placement:
    """Decide where weights go: one device if they fit, else several and the CPU.

    What is placed on the CPU still computes on a device; accelerate moves it there each time.

    Args:
        name: Of the model, for errors.
        weight_bytes: What they take.
        device: The first choice.
        may_spread: Whether other CUDA devices may be used, too.

    Raises:
        ModelError: All memory together is too small.
    """
    ram = psutil.virtual_memory().available
    if device.type == "cpu":
        free = {}
    else:
        assert device.index is not None
        indices = range(torch.cuda.device_count()) if may_spread else [device.index]
        free = {index: torch.cuda.mem_get_info(index)[0] for index in indices}
        if weight_bytes <= free[device.index] * DEVICE_SHARE:
            return checkpoint.Placement({"": str(device)})
    total = sum(free.values()) + ram
    if weight_bytes > total:
        raise ModelError(
            f"{name}: its weights need {weight_bytes / 1e9:.1f} GB, {total / 1e9:.1f} GB are free",
            "Free memory or choose a smaller model.",
        )
    if not free:
        return checkpoint.Placement(None)
    most: dict[int | str, int] = {index: int(room * DEVICE_SHARE) for index, room in free.items()}
    return checkpoint.Placement("auto", {**most, "cpu": ram})


def _window(config: PretrainedConfig) -> int:
    """Return the number of positions, extended where the config scales RoPE without saying so."""
    window = int(config.max_position_embeddings)
    for entry in rope_parameters(config):
        original = entry.get("original_max_position_embeddings")
        if entry.get("rope_type") == "yarn" and original:
            window = max(window, int(original * entry.get("factor", 1)))
    return window


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    """Collect every id that ends an answer."""
    found: set[int] = set()
    for given in (
        getattr(model.generation_config, "eos_token_id", None),
        model.config.eos_token_id,
        tokenizer.eos_token_id,
    ):
        found.update([given] if isinstance(given, int) else given or [])
    controls = tokenizer.get_added_vocab()
    found.update(controls[token] for token in TURN_ENDS if token in controls)
    return frozenset(found)
