"""Attention over pages as small pure functions, chosen by device.

Kept light on purpose: transformers probes for an unrelated package of this name, so this file
imports nothing and has no `__version__`.
"""
