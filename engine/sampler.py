"""Choosing the next token from logits.

Owns the random state of one answer. Knows no model and no sequence beyond the answer's own tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import KVError


class Sampler:
    """Greedy, or temperature and nucleus sampling (arXiv 1904.09751), reproducible by seed."""

    def __init__(self, config: SamplingConfig) -> None:
        self._config = config
        self._random = torch.Generator().manual_seed(config.seed)
        self._answer: list[int] = []

    @property
    def num_tokens(self) -> int:
        """Tokens chosen so far."""
        return len(self._answer)

    def choose(self, logits: Tensor) -> int:
        """Choose one token.

        Args:
            logits: `[vocab_size]`, any float dtype, any device.

        Raises:
            KVError: The largest logit is no number: the model or its KV is damaged.
        """
        scores = logits.float().cpu()
        if not torch.isfinite(scores.max()):
            raise KVError("the model gave logits that are not numbers", "Check the model's files.")
        if self._config.repetition_penalty != 1.0 and self._answer:
            seen = torch.tensor(sorted(set(self._answer)))
            penalty = self._config.repetition_penalty
            values = scores[seen]
            weaker = torch.where(values > 0, values / penalty, values * penalty)
            scores = scores.index_copy(0, seen, weaker)
        token = self._draw(scores)
        self._answer.append(token)
        return token

    def _draw(self, scores: Tensor) -> int:
        if self._config.temperature == 0.0:
            return int(scores.argmax())
        probabilities = torch.softmax(scores / self._config.temperature, dim=-1)
        ordered, tokens = probabilities.sort(descending=True)
        outside = ordered.cumsum(0) - ordered >= self._config.top_p
        ordered[outside] = 0.0
        return int(tokens[torch.multinomial(ordered, 1, generator=self._random)])
