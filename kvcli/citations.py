"""From attention mass per page to the sources of an answer.

Owns the mapping of page scores to spans and the choice of how many are worth citing. Knows neither
the engine nor how mass is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


EVIDENCE_WEIGHT = 2.0
"""Of what a piece of a page says about the question, beside its share of the page's tokens."""

Evidence = Callable[[int, int], float]
"""From 0 to 1: how much tokens `[first, end)` have to do with the question."""


def cite(
    scores: Sequence[float],
    source_map: SourceMap,
    page_tokens: int,
    evidence: Evidence | None = None,
) -> tuple[Citation, ...]:
    """Name the spans that drew the most mass, heaviest first.

    Args:
        scores: One score per page of the sequence, 0 or more.
        source_map: Where the tokens came from.
        page_tokens: Tokens per page.
        evidence: Tells pieces of one page apart; None: they count by their tokens.

    Returns:
        At most `MOST` citations; the weights are shares of the whole score.
    """
    weights: dict[TokenSpan, float] = {}
    for page, score in enumerate(scores):
        if score <= 0.0:
            continue
        first, end = page * page_tokens, (page + 1) * page_tokens
        pieces = [
            (span, max(first, span.first_token), min(end, span.end_token))
            for span in source_map.overlapping(first, page_tokens)
        ]
        shares = _shares(pieces, page_tokens, evidence if len(pieces) > 1 else None)
        for (span, _, _), share in zip(pieces, shares, strict=True):
            weights[span] = weights.get(span, 0.0) + score * share
    total = sum(weights.values())
    heaviest = sorted(weights.items(), key=lambda item: -item[1])[:MOST]
    return tuple(
        _citation(span, weight / total)
        for span, weight in heaviest
        if weight / total >= LEAST_SHARE
    )


def _shares(
    pieces: Sequence[tuple[TokenSpan, int, int]], page_tokens: int, evidence: Evidence | None
) -> list[float]:
    """Divide a page's score among its pieces.

    A sentence at the foot of a printed page shares its KV page with the head of the next, which
    often has more of its tokens and nothing to do with the question.
    """
    sizes = [(end - first) / page_tokens for _, first, end in pieces]
    if evidence is None:
        return sizes
    parts = [
        size + EVIDENCE_WEIGHT * evidence(first, end)
        for size, (_, first, end) in zip(sizes, pieces, strict=True)
    ]
    return [part * sum(sizes) / sum(parts) for part in parts]


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
