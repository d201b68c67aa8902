"""The functions of a module on copies of their tensors on a GPU, for tests written for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class OnCuda:
    """As a module: tensors go up with their strides, and what was written comes back."""

    module: ModuleType

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self.module, name)

        def call(*args: Any, **options: Any) -> Any:
            given: list[tuple[Tensor, Tensor]] = []

            def up(value: Any) -> Any:
                if isinstance(value, tuple) and any(isinstance(x, Tensor) for x in value):
                    return tuple(map(up, value))
                if not isinstance(value, Tensor):
                    return value
                copy = torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device="cuda"
                ).copy_(value)
                given.append((value, copy))
                return copy

            result = function(*map(up, args), **{key: up(x) for key, x in options.items()})
            for tensor, copy in given:
                tensor.copy_(copy)
            return result.cpu() if isinstance(result, Tensor) else result

        return call
