"""One step: a forward pass over the next tokens of a sequence, all of it or none of it.

Owns where steps end and what becomes of one that fails. Knows neither logits' meaning nor commits.
"""

from __future__ import annotations

from contextlib import closing

import torch
from torch import Tensor

from engine.assembly import Assembly
from engine.attention.exact import ExactAttention
from engine.attention.recorder import QueryRecorder
from engine.lookup import PageLookup
from engine.model.load import LoadedModel
from engine.sequence import Sequence
from engine.telemetry import Phase, Telemetry
from engine.tiers.plan import StepPlan


class Stepper:
    """Runs steps.

    Args:
        assembly: The engine's parts.
        model: What computes.
        lookup: Whose sketch grows with the main sequence.
        telemetry: Where the time is booked.
        step_tokens: Most tokens of a step.
    """

    def __init__(
        self,
        assembly: Assembly,
        model: LoadedModel,
        lookup: PageLookup,
        telemetry: Telemetry,
        step_tokens: int,
    ) -> None:
        self._stack, self._memory = assembly.stack, assembly.memory
        self._model = model
        self._lookup = lookup
        self._telemetry = telemetry
        self._step_tokens = step_tokens

    def end(self, sequence: Sequence, total: int) -> int:
        """Say where the next step ends: at segment borders, so that whole segments can go straight
        to the writer.

        The rule depends on positions alone: the same tokens are always cut the same way.
        """
        first, size = sequence.num_tokens, self._model.geometry.segment_tokens
        end = (first // size + 1) * size if first % size else first + self._step_tokens
        return min(total, end, sequence.turn_end(first))

    @torch.inference_mode()
    def run(
        self, sequence: Sequence, end: int, recorder: QueryRecorder | None, keep: int = 1
    ) -> Tensor:
        """Compute the KV of the tokens up to `end`.

        Args:
            sequence: Where they wait.
            end: See `Stepper.end`.
            recorder: Keeps the queries of its layers, if given.
            keep: How many of the last tokens' logits are wanted.

        Returns:
            Logits, `[keep, vocab_size]`.
        """
        first, model = sequence.num_tokens, self._model
        with self._telemetry.phase(Phase.COMPUTE):
            keys = self._lookup.begin_step(sequence)
            plan = self._stack.plan_step(sequence, end - first)
            try:
                with closing(
                    ExactAttention(plan, self._memory, model.rope, model.layers, recorder, keys)
                ) as attention:
                    logits = self.forward(sequence.token_ids[first:end], plan, attention, keep)
            except BaseException:
                self._stack.abort(sequence, plan)
                raise
            self._stack.complete(sequence, plan, attention.pages_in_memory)
            self._lookup.end_step(keys)
        return logits

    def forward(
        self, ids: list[int], plan: StepPlan, attention: ExactAttention, keep: int
    ) -> Tensor:
        """Run the model on ids; its attention calls go to `attention`."""
        device = self._model.device
        positions = torch.arange(plan.position, plan.position + plan.num_tokens, device=device)
        output = self._model.model(
            input_ids=torch.tensor(ids, device=device)[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=keep,
            kv_context=attention,
        )
        logits: Tensor = output.logits[0]
        return logits
