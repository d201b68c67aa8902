"""From text to token ids: chat scaffolding around content, and content that stays content.

Owns the order of a prompt (documents first, question last), the chat template's pieces and the
encoding of content with control strings switched off: an end-of-turn string inside a document
becomes ordinary tokens and can never end a turn. Knows tokenizers; knows no files and no engine.

The scaffolding is rendered once, with markers where content goes, and cut at the markers. Turns are
appended as token ids; nothing that was sent to the model is ever rendered again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import count, pairwise
from typing import TYPE_CHECKING

from engine.errors import ModelRefused
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.corpus.spans import Corpus, Document, Span
from kvcli.symbol_outline import outline_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FIRST, REPLY, SECOND = "KVCLIFIRSTMARKER", "KVCLIREPLYMARKER", "KVCLISECONDMARKER"
"""Stand where content goes while the template is rendered; plain letters survive every template."""

SUMMARY_QUESTION = "Summarize the document above. Say what it is about and give its main findings."

NEUTRAL_QUESTIONS = ("How many are there?", "What kind of text is this?")
"""Ask for nothing in particular: where one of them looks, every question looks. Their form matters:
of five tried with 21 real questions, the first left the right page first most often."""


QUESTION = "Question:"
"""In front of a question."""


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
        model: The model's name, for messages.

    Raises:
        ModelRefused: The chat template cannot be cut into pieces.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, model: str = "this model") -> None:
        self._tokenizer = tokenizer
        self._model = model
        self.backend = tokenizer.backend_tokenizer
        self._lookalikes = _lookalikes(tokenizer)
        self.scaffolding = self._render()

    def _render(self) -> Scaffolding:
        if self._tokenizer.chat_template is None:
            start = self._tokenizer.bos_token_id
            head = [token for token in self.backend.encode("").ids[:1] if token == start]
            return Scaffolding(head, *map(self._encode_scaffold, ("\n\nAnswer:", "\n\n")))
        turns = [
            {"role": "user", "content": FIRST},
            {"role": "assistant", "content": REPLY},
            {"role": "user", "content": SECOND},
        ]
        try:
            # Models that think aloud by default are asked not to; others ignore the argument.
            rendered = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
            before, rest = str(rendered).split(FIRST)
            _, rest = rest.split(REPLY)
            between, close = rest.split(SECOND)
        except Exception as error:  # a template is a program and raises what it likes
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ModelRefused(
                f"{self._model}: its chat template does not render a plain conversation ({reason})",
                "Use an instruction-tuned model, such as those of `kvcli models`.",
            ) from error
        head, *others = map(self._encode_scaffold, (before, close, between))
        return Scaffolding(self._with_one_start(head), *others)

    def _with_one_start(self, head: list[int]) -> list[int]:
        """Some templates write the start token although their tokenizer's settings do it too."""
        start = self._tokenizer.bos_token_id
        while start is not None and head[:2] == [start, start]:
            head = head[1:]
        return head

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
        pieces = [self._harmless(text) for text in texts]
        with self._control_strings_off():
            encodings = iter(
                self.backend.encode_batch(
                    [piece for text in pieces for piece in text], add_special_tokens=False
                )
            )
        return [[token for _ in text for token in next(encodings).ids] for text in pieces]

    def _harmless(self, text: str) -> list[str]:
        """Cut a text inside every control string that the tokenizer does not flag as one."""
        if self._lookalikes is None:
            return [text]
        cuts = [0, *(found.start() + 1 for found in self._lookalikes.finditer(text)), len(text)]
        return [text[start:end] for start, end in pairwise(cuts)]

    def documents(self, corpus: Corpus) -> Prompt:
        """Encode every document, span by span, behind the head of the first turn.

        Spans are encoded apart, so that their borders are token borders once and for all.
        """
        tag = free_tag(corpus)
        pieces = [piece for document in corpus.documents for piece in pieces_of(document, tag)]
        ids = list(self.scaffolding.head)
        spans: list[TokenSpan] = []
        encoded = self.encode_content(text for text, *_ in pieces)
        for (_, path, span), tokens in zip(pieces, encoded, strict=True):
            if span is not None:
                spans.append(TokenSpan.of(span, path, len(ids), len(tokens)))
            ids.extend(tokens)
        return Prompt(ids, SourceMap(spans))

    def excerpt(self, path: str, page: int | None, note: str | None, *, tag: str) -> list[int]:
        """What stands in front of an excerpt of a document."""
        place = "" if page is None else _page_mark(page)
        place += "" if note is None else _note_mark(note)
        (ids,) = self.encode_content([f'<{tag} path="{escape(path)}">\n{place}'])
        return ids

    def excerpt_end(self, *, tag: str) -> list[int]:
        """What stands behind an excerpt."""
        (ids,) = self.encode_content([f"</{tag}>\n"])
        return ids

    def excerpt_tag(self, excerpts: Iterable[list[int]], notes: Iterable[str] = ()) -> str:
        """A tag that none of these excerpts writes, nor the notes that go with them."""
        texts = self.backend.decode_batch(list(excerpts), skip_special_tokens=False)
        return _free_tag([*texts, *notes])

    def first_question(self, question: str) -> list[int]:
        """The rest of the first user turn, behind the documents, with a question."""
        return self.first_request(f"{QUESTION} {question}")

    def first_request(self, request: str) -> list[int]:
        """The rest of the first user turn, behind the documents."""
        (content,) = self.encode_content([f"\n{_encodable(request)}"])
        return content + self.scaffolding.close

    def next_question(self, question: str, last_id: int) -> list[int]:
        """A further turn; an end-of-turn token that the answer already has is not repeated."""
        between = self.scaffolding.between
        if between and between[0] == last_id:
            between = between[1:]
        (content,) = self.encode_content([_encodable(question)])
        return between + content + self.scaffolding.close

    def turn_parts(self, ids: list[int]) -> tuple[str, str]:
        """What the user and the model said in a turn; all scaffolding is left out."""
        between, close = self.scaffolding.between, self.scaffolding.close
        for opening in (between, between[1:]):
            if opening and ids[: len(opening)] == opening:
                ids = ids[len(opening) :]
                break
        cut = _find(close, ids)
        parts = (ids, []) if cut is None else (ids[:cut], ids[cut + len(close) :])
        asked, answer = (
            str(self.backend.decode(part, skip_special_tokens=True)).strip() for part in parts
        )
        return asked.removeprefix(QUESTION).strip(), answer

    def said_before(self, text: str, answer: str) -> list[int]:
        """An earlier turn as it stands in front of a question.

        In the user's own voice, without a tag: the default model told 11 of 12 remarks right that
        way, 10 with tags, and 4 with the turn as a turn of its own.

        Args:
            text: What the user said.
            answer: What the model said; empty: that is left out.
        """
        said = f"Earlier I asked: {text}\nYou said: {answer}\n"
        (ids,) = self.encode_content([said if answer else f"Earlier I said: {text}\n"])
        return ids


def pieces_of(document: Document, tag: str) -> Iterator[tuple[str, str, Span | None]]:
    """What stands in a prompt of one document: each text, the path, and the span it comes from."""
    path = document.path
    yield f'<{tag} path="{escape(path)}">\n{outline_of(document)}', path, None
    for span in document.spans:
        if span.page is not None:
            yield _page_mark(span.page), path, None
        if span.note is not None and span.note not in span.text:
            yield _note_mark(span.note), path, None
        yield span.text + ("" if span.text.endswith("\n") else "\n"), path, span
    yield f"</{tag}>\n", path, None


def _find(part: list[int], ids: list[int]) -> int | None:
    """Where `part` begins in `ids` for the first time."""
    starts = range(len(ids) - len(part) + 1)
    return next((start for start in starts if ids[start : start + len(part)] == part), None)


def _page_mark(page: int) -> str:
    return f"[page {page}]\n"


def _note_mark(note: str) -> str:
    return f"[columns: {note}]\n"


def _encodable(text: str) -> str:
    """Replace what a terminal's odd bytes have become: lone surrogates, which are no text."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _lookalikes(tokenizer: PreTrainedTokenizerFast) -> re.Pattern[str] | None:
    """Control strings that the tokenizer would find in content even when told not to.

    Only added tokens flagged as special can be switched off. Of the others, those that the chat
    template writes, and those in the brackets that only control strings have, are control strings.
    """
    template = str(tokenizer.chat_template or "")
    found = [
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if not token.special
        and token.content.strip()
        and (token.content in template or re.fullmatch(r"<\|.*\|>", token.content))
    ]
    # Looked for from every place on, because one may begin inside another.
    return re.compile(f"(?={'|'.join(map(re.escape, found))})") if found else None


def free_tag(corpus: Corpus) -> str:
    """A tag that no document writes, so that none can close itself or open another."""
    spans = [span for document in corpus.documents for span in document.spans]
    return _free_tag([text for span in spans for text in (span.text, span.note or "")])


def _free_tag(texts: Collection[str]) -> str:
    tags = (f"document{number}" if number > 1 else "document" for number in count(1))
    return next(tag for tag in tags if not any(_mentions(tag, text) for text in texts))


def _mentions(tag: str, text: str) -> bool:
    """Whether a text writes a tag, or something that a model may take for it."""
    return re.search(rf"<[\s/]*{tag}", text, re.IGNORECASE) is not None
