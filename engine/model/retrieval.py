"""Which layers of a model look things up.

Owns the first guess, by depth alone. A better one can be had by trying (`kvcli.calibration`) and is
put in its place on the `LoadedModel`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.hook import LayerSpec

BAND = (0.46, 0.64)
"""Share of the depth between which layers look things up. On the default model (layers 14 to 18 of
30) the page of the answer came first for 18 of 21 questions by these layers, for 8 by all."""


def likely_lookup_layers(layers: Sequence[LayerSpec]) -> tuple[int, ...]:
    """The layers of the band, without sliding ones if others are there."""
    first, last = (round(share * len(layers)) for share in BAND)
    return without_sliding(layers, range(first, max(last, first + 1)))


def without_sliding(layers: Sequence[LayerSpec], some: Sequence[int]) -> tuple[int, ...]:
    """Some of the layers without sliding ones, which have learned to look near; all, if only such
    are there."""
    return tuple(at for at in some if layers[at].sliding_window is None) or tuple(some)
