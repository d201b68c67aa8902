"""Documents cut into sections: runs of tokens that fit in front of a request, each with a name.

Owns where one section ends and the next begins, and how a section is written in a reference. Knows
the source map; knows neither the engine nor what is asked about a section.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.errors import OverBudget
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.results import Citation

SECTION_TOKENS = 3072
"""Most tokens of a section: what a small model still reads well."""


@dataclass(frozen=True, slots=True)
class Section:
    """Tokens `[first_token, end_token)` of the documents, and where they come from."""

    first_token: int
    end_token: int
    source: TokenSpan
    """The first source, its lines up to the last ones if it is the only one."""
    reference: str
    """As people are shown it: `report.pdf p. 12-19`, `src/a.py:1-200 … src/b.py:1-40`."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the section."""
        return self.end_token - self.first_token

    def citation(self, weight: float) -> Citation:
        """The section as a source of an answer."""
        source = self.source
        return Citation(
            path=source.path,
            page=source.page,
            label=source.label,
            lines=source.lines,
            name=source.name,
            weight=weight,
            text=self.reference,
        )


def section_tokens(window: int, page_tokens: int) -> int:
    """Most tokens of a section for a model's window: whole pages, half of the window at most.

    Raises:
        OverBudget: Not even two pages; nothing could be read.
    """
    most = min(SECTION_TOKENS, window // 2) // page_tokens * page_tokens
    if most < 2 * page_tokens:
        raise OverBudget(
            f"the window of {window:,} leaves no room to read sections of at least two pages of "
            f"{page_tokens:,} tokens",
            "Give a model with a longer window, a larger --window, or smaller --page-tokens.",
        )
    return most


def cut_sections(
    source_map: SourceMap, num_tokens: int, page_tokens: int, most_tokens: int
) -> list[Section]:
    """Cut documents into sections of about the same length that begin at page borders.

    A section ends between two documents if it can, else between two spans, else anywhere. Small
    documents share one.

    Args:
        source_map: Where the tokens came from.
        num_tokens: Leading tokens that are documents.
        page_tokens: Tokens per page.
        most_tokens: Most tokens of a section, a multiple of `page_tokens`.

    Returns:
        Sections that cover `[0, num_tokens)` exactly once, in order.
    """
    assert most_tokens >= page_tokens and most_tokens % page_tokens == 0
    joints = [(a, b) for a, b in pairwise(source_map.spans)]
    spans = sorted({b.first_token // page_tokens * page_tokens for _, b in joints})
    documents = sorted(
        {b.first_token // page_tokens * page_tokens for a, b in joints if a.path != b.path}
    )
    preferred = ((documents, most_tokens // 4), (spans, most_tokens // 2))
    starts, first = [0], 0
    while num_tokens - first > most_tokens:
        first = _best_end(first, num_tokens, most_tokens, preferred)
        starts.append(first)
    ends = [*starts[1:], num_tokens]
    return [
        section_at(source_map, first, end, page_tokens)
        for first, end in zip(starts, ends, strict=True)
        if first < end
    ]


def _best_end(
    first: int, num_tokens: int, most: int, preferred: Sequence[tuple[list[int], int]]
) -> int:
    left = num_tokens - first
    ideal = first + left / -(-left // most)
    for borders, least in preferred:
        begin = bisect_left(borders, first + max(1, least))
        inside = borders[begin : bisect_right(borders, first + most)]
        if inside:
            return min(inside, key=lambda border: abs(border - ideal))
    return first + most


def section_at(source_map: SourceMap, first: int, end: int, page_tokens: int) -> Section:
    """Name the section of tokens `[first, end)`.

    What a border at a page's start leaves of a neighbouring span, less than a page, is not named.
    """
    spans = list(source_map.overlapping(first, end - first))
    while len(spans) > 1 and spans[0].first_token < first > spans[0].end_token - page_tokens:
        del spans[0]
    while len(spans) > 1 and spans[-1].end_token > end < spans[-1].first_token + page_tokens:
        del spans[-1]
    if not spans:
        nowhere = TokenSpan(first, end - first, f"tokens {first:,}-{end:,}")
        return Section(first, end, nowhere, nowhere.path)
    paths = list(dict.fromkeys(span.path for span in spans))
    runs = [[span for span in spans if span.path == path] for path in (paths[0], paths[-1])]
    names = [_run_name(run) for run in runs[: len(paths)]]
    more = f" ({len(paths)} files)" if len(paths) > 2 else ""
    return Section(first, end, _joined(runs[0]), " … ".join(names) + more)


def _joined(spans: list[TokenSpan]) -> TokenSpan:
    """One source for all spans of a document, by its first page or its whole range of lines."""
    first, last = spans[0], spans[-1]
    lines = (first.lines[0], last.lines[1]) if first.lines and last.lines else None
    in_cells = len(spans) > 1 and first.path.endswith(".ipynb")
    return TokenSpan(
        first.first_token,
        last.end_token - first.first_token,
        first.path,
        page=first.page,
        label=first.label,
        lines=None if in_cells else lines,
        name=first.name if len(spans) == 1 else None,
    )


def _run_name(spans: list[TokenSpan]) -> str:
    first, last = spans[0], spans[-1]
    if first.page is not None and last.page is not None and first.page != last.page:
        return f"{first.path} p. {first.page}-{last.page}"
    joined = _joined(spans)
    if joined.lines is None and first.name and last.name and not first.path.endswith(".ipynb"):
        names = dict.fromkeys((first.name, last.name))
        return f"{first.path} " + " … ".join(f'"{name}"' for name in names)
    return joined.cite()
