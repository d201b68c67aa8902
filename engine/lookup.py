"""Looking up: which pages of a sequence a question asks for, by every key or by the key sketch.

Owns the choice between the two ways and the life of the sketch: it grows with the main sequence
while that is read bounded, is kept in the session file beside the KV, and is read back by threads
of its own, for the model has other things to do before it is needed. Whatever is wrong with it
costs time only: then every key is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from enum import Enum
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from engine.assembly import Assembly
from engine.attention.probe import probe
from engine.attention.recorder import StepRecorder
from engine.attention.sketch import KeySketch, SketchBasis
from engine.errors import AttachmentCorrupt
from engine.model.load import LoadedModel
from engine.sequence import Sequence
from engine.session import Attachment, SessionFile
from engine.telemetry import Link, Phase, Telemetry
from engine.types import Tier

BASIS = "sketch.basis"
"""Attachment: the fields of a `SketchBasis`, fp32, one after another; begins a new sketch."""

CODES = "sketch.codes"
"""Attachment: codes of some tokens, `[layers, num_kv_heads, tokens, rank]` int8; meta `first`."""

CODING = 1
"""Number of the way of coding, counted up when sketches of before cannot be read any more."""

CHUNK_TOKENS = 8192
"""Most tokens of one attachment, so that reading one back takes little memory."""


READERS = 2
"""Threads that read a stored sketch. Its attachments are as short as the time between two commits;
read one by one they leave the disk idle while they are checked and put in place."""


class ProbeWay(Enum):
    """How pages are scored. The value is what `--lookup` takes."""

    AUTO = "auto"
    """By the sketch, if there is one and not all keys lie in memory; else by every key."""
    SCAN = "scan"
    """By every key, read from wherever it lies."""
    SKETCH = "sketch"
    """By the sketch, if there is one."""


class PageLookup:
    """Scores pages, and keeps the main sequence's sketch for it.

    Args:
        assembly: The engine's parts; its plan says whether there is room for a sketch.
        model: Whose keys.
        telemetry: Where reading the sketch is booked.
        num_tokens: Tokens that the main sequence may grow to.
        session: The session that the sketch is kept in, if there is one.
    """

    def __init__(
        self,
        assembly: Assembly,
        model: LoadedModel,
        telemetry: Telemetry,
        *,
        num_tokens: int,
        session: SessionFile | None,
    ) -> None:
        self._stack, self._memory = assembly.stack, assembly.memory
        self._model, self._telemetry, self._session = model, telemetry, session
        self._layers = model.lookup_layers
        self._has_room = assembly.plan.sketch_bytes > 0
        self._num_tokens = num_tokens
        self._main: Sequence | None = None
        self._sketch: KeySketch | None = None
        self._loading: Future[KeySketch | None] | None = None
        self._is_closing = False
        self._saved_tokens = 0
        self.refusal = assembly.plan.sketch_refusal
        """Why there is no sketch although one is wanted, one line; None: there is, or may be."""

    def follow(self, sequence: Sequence) -> None:
        """Take a new or resumed sequence for the main one."""
        self._main, self._sketch = sequence, None
        self._saved_tokens = 0
        if self._has_room and sequence.num_tokens:
            reader = ThreadPoolExecutor(1, thread_name_prefix="sketch-load")
            self._loading = reader.submit(self._load, sequence.num_tokens)
            reader.shutdown(wait=False)
        elif self._has_room:
            self._sketch = self._empty()

    def close(self) -> None:
        """Stop reading the sketch, if it is still being read; waits for the read in flight."""
        self._is_closing = True
        if self._loading is not None:
            wait([self._loading])

    # -- while the main sequence grows -----------------------------------------------------------

    def begin_step(self, sequence: Sequence) -> StepRecorder | None:
        """Say what a step's keys are to be kept in; None if the sketch does not want them."""
        if sequence is not self._main or sequence.local_window is None:
            return None
        sketch = self._found()
        if sketch is None or sketch.num_tokens != sequence.num_tokens:
            return None
        return StepRecorder(self._layers)

    def end_step(self, recorder: StepRecorder | None) -> None:
        """Add the keys of a step that has succeeded."""
        if recorder is not None:
            assert self._sketch is not None
            self._sketch.append(recorder.keys, recorder.queries)

    def save(self) -> None:
        """Attach to the session what it does not have yet, for the next commit to name.

        Raises:
            StorageError: The disk is full or failed.
        """
        sketch, session = self._sketch, self._session
        if sketch is None or sketch.basis is None or session is None:
            return
        if not self._saved_tokens and sketch.coded_tokens:
            tensors = [getattr(sketch.basis, name) for name in SketchBasis.__dataclass_fields__]
            data = np.concatenate([tensor.numpy().ravel() for tensor in tensors])
            session.attach(BASIS, data.data, self._meta(sketch))
        while self._saved_tokens < sketch.coded_tokens:
            first = self._saved_tokens
            end = min(first + CHUNK_TOKENS, sketch.coded_tokens)
            session.attach(CODES, sketch.codes(first, end).numpy().data, {"first": first})
            self._saved_tokens = end

    # -- scoring ---------------------------------------------------------------------------------

    def ways(self, sequence: Sequence, num_tokens: int) -> tuple[ProbeWay, ...]:
        """Say in which ways the first tokens of a sequence can be probed."""
        has_sketch = self._covers(sequence, num_tokens)
        return (ProbeWay.SCAN, ProbeWay.SKETCH) if has_sketch else (ProbeWay.SCAN,)

    def probe(
        self,
        sequence: Sequence,
        num_tokens: int,
        queries: Mapping[int, Tensor],
        way: ProbeWay,
        first_token: int = 0,
    ) -> Tensor:
        """Score pages, see `engine.attention.probe.probe`.

        Args:
            sequence: Its pages may lie anywhere.
            num_tokens: One past the last token to score.
            queries: Position-free queries by layer.
            way: What is wanted; without a sketch of these layers and tokens every key is read.
            first_token: First token to score, the first of a page; none before it counts.
        """
        parts = self._stack.past.scan(sequence, num_tokens, first_token)
        on_disk = any(source.tier is Tier.DISK for part in parts for source in part.sources)
        is_wanted = way is ProbeWay.SKETCH or (way is ProbeWay.AUTO and on_disk)
        is_possible = is_wanted and not first_token and sorted(queries) == list(self._layers)
        if is_possible and self._covers(sequence, num_tokens):
            assert self._sketch is not None
            return self._sketch.probe(num_tokens, self._model.layers, queries)
        return probe(parts, self._memory, self._model.layers, queries)

    def _covers(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether the sketch is of these tokens: the main sequence's, or a fork's that has them."""
        main = self._main
        if main is None or not 0 < num_tokens <= main.num_tokens:
            return False
        full = num_tokens // main.table.page_tokens
        first = full * main.table.page_tokens
        is_same = sequence is main or (
            sequence.table.pages[:full] == main.table.pages[:full]
            and sequence.token_ids[first:num_tokens] == main.token_ids[first:num_tokens]
        )
        if not is_same:
            return False
        sketch = self._found()
        return sketch is not None and sketch.coded_tokens >= num_tokens

    # -- the stored sketch -----------------------------------------------------------------------

    def _empty(self) -> KeySketch:
        return KeySketch(self._layers, self._model.geometry, self._num_tokens)

    def _found(self) -> KeySketch | None:
        """Give the sketch; waits until as much of it as is stored has been read."""
        if self._loading is not None:
            with self._telemetry.phase(Phase.READ):
                self._sketch = self._loading.result()
            self._loading = None
            self._saved_tokens = self._sketch.coded_tokens if self._sketch is not None else 0
        return self._sketch

    def _load(self, num_tokens: int) -> KeySketch | None:
        """Read as much of the stored sketch as is sound and follows on from the start."""
        assert self._session is not None
        sketch: KeySketch | None = None
        try:
            with closing(self._read_stored()) as stored:
                for attachment, data in stored:
                    if attachment.name == BASIS:
                        sketch = self._begin(attachment, data)
                    elif sketch is not None:
                        self._add(sketch, attachment, data)
                    if self._is_closing:
                        break
        except AttachmentCorrupt as fault:
            self.refusal = f"part of the key sketch is lost, keys are read instead: {fault.message}"
        if sketch is not None:
            sketch.truncate(num_tokens)
        return sketch

    def _read_stored(self) -> Generator[tuple[Attachment, memoryview]]:
        """Read the parts of the stored sketch in order, a few of them ahead."""
        assert self._session is not None
        parts = (each for each in self._session.attachments if each.name in (BASIS, CODES))
        coming: deque[tuple[Attachment, Future[memoryview]]] = deque()
        readers = ThreadPoolExecutor(READERS, thread_name_prefix="sketch-read")
        try:
            while True:
                for part in islice(parts, 2 * READERS - len(coming)):
                    coming.append((part, readers.submit(self._read, part)))
                if not coming:
                    return
                part, data = coming.popleft()
                yield part, data.result()
        finally:
            readers.shutdown(cancel_futures=True)

    def _begin(self, attachment: Attachment, data: memoryview) -> KeySketch:
        geometry, sketch = self._model.geometry, self._empty()
        heads, dim = (len(sketch.layers), geometry.num_kv_heads), geometry.head_dim
        axes = (*heads, dim, sketch.rank)
        shapes = ((*heads, 1, dim), axes, axes, (*heads, 1, sketch.rank))
        sizes = [int(np.prod(shape)) for shape in shapes]
        if attachment.meta != self._meta(sketch) or attachment.num_bytes != 4 * sum(sizes):
            raise _unusable("it is of other layers or coded in another way")
        numbers = torch.frombuffer(data, dtype=torch.float32)
        fields = zip(torch.split(numbers, sizes), shapes, strict=True)
        sketch.basis = SketchBasis(*(field.view(shape) for field, shape in fields))
        return sketch

    def _add(self, sketch: KeySketch, attachment: Attachment, data: memoryview) -> None:
        first, heads = attachment.meta.get("first"), self._model.geometry.num_kv_heads
        shape = (len(sketch.layers), heads, -1, sketch.rank)
        if type(first) is not int or len(data) % (len(sketch.layers) * heads * sketch.rank):
            raise _unusable("its codes are of another shape")
        if not 0 <= first <= sketch.num_tokens:
            raise _unusable(f"the codes of {first - sketch.num_tokens:,} tokens are missing")
        sketch.restore(first, torch.frombuffer(data, dtype=torch.int8).view(shape))

    def _meta(self, sketch: KeySketch) -> dict[str, object]:
        return {"coding": CODING, "layers": list(sketch.layers), "rank": sketch.rank}

    def _read(self, attachment: Attachment) -> memoryview:
        assert self._session is not None
        with self._telemetry.busy(Link.DISK_TO_HOST):
            data = self._session.read_attachment(attachment)
        self._telemetry.count_read(len(data))
        return data


def _unusable(reason: str) -> AttachmentCorrupt:
    return AttachmentCorrupt(reason, "It is not used; ingest the documents again to have it back.")
