"""What a GPU must be able to do for the Triton kernels. Needs no torch, so that anybody may ask."""

from __future__ import annotations

LEAST_CAPABILITY = (8, 0)
"""Compute capability from which tensor cores multiply bf16 (CUDA C++ programming guide)."""
