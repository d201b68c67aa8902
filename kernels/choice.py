"""Who computes on a device: the one question that every choice of a kernel asks.

Owns the answer, by device alone. Tests put another function in its place where it is used, to have
Triton's interpreter compute on a CPU.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from kernels.capability import LEAST_CAPABILITY


@cache
def by_triton(device: torch.device) -> bool:
    """Whether Triton's kernels compute on a device, and not ATen or plain torch."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return False
    return find_spec("triton") is not None  # it is no part of some builds of torch
