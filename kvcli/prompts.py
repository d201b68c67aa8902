"""From text to token ids: chat scaffolding around content, and content that stays content.

Owns the order of a prompt (documents first, question last), the chat template's pieces and the
encoding of content with control strings switched off: an end-of-turn string inside a document
becomes ordinary tokens and can never end a turn. Knows tokenizers; knows no files and no engine.

The scaffolding is rendered once, with markers where content goes, and cut at the markers. Turns are
appended as token ids; nothing that was sent to the model is ever rendered again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.corpus.spans import Corpus

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FIRST, REPLY, SECOND = "KVCLIFIRSTMARKER", "KVCLIREPLYMARKER", "KVCLISECONDMARKER"
"""Stand where content goes while the template is rendered; plain letters survive every template."""

SUMMARY_QUESTION = "Summarize the document above. Say what it is about and give its main findings."

NEUTRAL_QUESTION = "How many are there?"
"""Asks for nothing in particular: where it looks, every question looks. Its form matters: of six
neutral questions tried with 21 real ones, it left the right page first most often."""


@dataclass(frozen=True, slots=True)
class Scaffolding:
    """Token ids of the chat template around content."""

    head: list[int]
    """Before the content of the first user turn."""
    close: list[int]
    """After a user turn's content, up to where the answer begins."""
    between: list[int]
    """After an answer, up to the content of the next user turn."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Documents as token ids, ready for a question."""

    token_ids: list[int]
    source_map: SourceMap


class PromptBuilder:
    """Encodes scaffolding and content for one tokenizer.

    Args:
        tokenizer: The model's.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self.backend = tokenizer.backend_tokenizer
        self.scaffolding = self._render()

    def _render(self) -> Scaffolding:
        if self._tokenizer.chat_template is None:
            encode = self._encode_scaffold
            return Scaffolding(encode(""), encode("\n\nAnswer:"), encode("\n\n"))
        turns = [
            {"role": "user", "content": FIRST},
            {"role": "assistant", "content": REPLY},
            {"role": "user", "content": SECOND},
        ]
        # Models that think aloud by default are asked not to; other templates ignore the argument.
        text = self._tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        head, rest = str(text).split(FIRST)
        _, rest = rest.split(REPLY)
        between, close = rest.split(SECOND)
        return Scaffolding(*map(self._encode_scaffold, (head, close, between)))

    def _encode_scaffold(self, text: str) -> list[int]:
        return list(self.backend.encode(text, add_special_tokens=False).ids)

    @contextmanager
    def _control_strings_off(self) -> Iterator[None]:
        before = self.backend.encode_special_tokens
        self.backend.encode_special_tokens = True
        try:
            yield
        finally:
            self.backend.encode_special_tokens = before

    def encode_content(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode each text by itself, control strings as ordinary text."""
        with self._control_strings_off():
            encodings = self.backend.encode_batch(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def documents(self, corpus: Corpus) -> Prompt:
        """Encode every document, span by span, behind the head of the first turn.

        Spans are encoded apart, so that their borders are token borders once and for all.
        """
        pieces: list[tuple[str, TokenSpan | None]] = []
        for document in corpus.documents:
            pieces.append((f'<document path="{document.path}">\n', None))
            for span in document.spans:
                if span.page is not None:
                    pieces.append((f"[page {span.page}]\n", None))
                ends = "" if span.text.endswith("\n") else "\n"
                pieces.append((span.text + ends, TokenSpan.of(span, document.path, 0, 0)))
            pieces.append(("</document>\n", None))
        ids = list(self.scaffolding.head)
        spans: list[TokenSpan] = []
        encoded = self.encode_content(text for text, _ in pieces)
        for (_, source), tokens in zip(pieces, encoded, strict=True):
            if source is not None:
                spans.append(source.placed(len(ids), len(tokens)))
            ids.extend(tokens)
        return Prompt(ids, SourceMap(spans))

    def first_question(self, question: str) -> list[int]:
        """The rest of the first user turn, behind the documents, with a question."""
        return self.first_request(f"Question: {question}")

    def first_request(self, request: str) -> list[int]:
        """The rest of the first user turn, behind the documents."""
        (content,) = self.encode_content([f"\n{request}"])
        return content + self.scaffolding.close

    def next_question(self, question: str, last_id: int) -> list[int]:
        """A further turn; an end-of-turn token that the answer already has is not repeated."""
        between = self.scaffolding.between
        if between and between[0] == last_id:
            between = between[1:]
        (content,) = self.encode_content([question])
        return between + content + self.scaffolding.close
