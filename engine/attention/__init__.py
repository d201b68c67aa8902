"""Attention over pages: what a step of the model sees of its past."""
