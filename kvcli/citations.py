"""From attention mass per page to the sources of an answer.

Owns the mapping of page scores to spans and the choice of how many are worth citing. Knows neither
the engine nor how mass is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.results import Citation

MOST = 8
BEST_PAGES = 8
"""Pages that count; the rest of the scores is noise that many pages share."""

LEAST_SHARE = 0.04
"""Sources with a smaller share of the mass are not worth a reader's time."""


def best_pages(scores: Sequence[float]) -> list[float]:
    """Keep the scores of the `BEST_PAGES` best pages and make the others 0."""
    best = sorted(range(len(scores)), key=lambda page: -scores[page])[:BEST_PAGES]
    return [score if page in best else 0.0 for page, score in enumerate(scores)]


def cite(scores: Sequence[float], source_map: SourceMap, page_tokens: int) -> tuple[Citation, ...]:
    """Name the spans that drew the most mass, heaviest first.

    Args:
        scores: One score per page of the sequence, 0 or more.
        source_map: Where the tokens came from.
        page_tokens: Tokens per page.

    Returns:
        At most `MOST` citations; the weights are shares of the whole score.
    """
    weights: dict[TokenSpan, float] = {}
    for page, score in enumerate(scores):
        if score <= 0.0:
            continue
        first, end = page * page_tokens, (page + 1) * page_tokens
        for span in source_map.overlapping(first, page_tokens):
            shared = min(end, span.end_token) - max(first, span.first_token)
            weights[span] = weights.get(span, 0.0) + score * shared / page_tokens
    total = sum(weights.values())
    heaviest = sorted(weights.items(), key=lambda item: -item[1])[:MOST]
    return tuple(
        _citation(span, weight / total)
        for span, weight in heaviest
        if weight / total >= LEAST_SHARE
    )


def _citation(span: TokenSpan, weight: float) -> Citation:
    return Citation(
        path=span.path,
        page=span.page,
        label=span.label,
        lines=span.lines,
        name=span.name,
        weight=round(weight, 4),
        text=span.cite(),
    )
