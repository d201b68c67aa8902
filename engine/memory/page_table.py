"""The page table of one sequence: which pages hold its tokens, in order.

Owns the mapping token position -> page, forking and the copy-on-write decision. Does not know where
pages lie nor what is in them.

Interval map of the positions of a table: `[0, num_tokens)` hold KV, `[num_tokens, capacity)` are
places in the last page that are still free.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.memory.page_pool import PagePool
from engine.types import PageId


@dataclass(frozen=True, slots=True)
class CopyOnWrite:
    """The shared last page must be copied before this table may append to it."""

    index: int
    """Index of the page in the table."""
    source: PageId
    target: PageId


@dataclass(slots=True, eq=False)
class PageTable:
    """Pages of one sequence in document order.

    Args:
        pool: Where pages come from.
        page_tokens: Tokens per page.
    """

    pool: PagePool
    page_tokens: int
    pages: list[PageId] = field(default_factory=list)
    num_tokens: int = 0

    @property
    def tokens_in_last_page(self) -> int:
        """Tokens in a partially filled last page, 0 if every page is full."""
        return self.num_tokens % self.page_tokens

    def reserve(self, num_new: int) -> CopyOnWrite | None:
        """Add pages for `num_new` more tokens; the tokens count only after `advance`.

        Returns:
            The copy to make first, if the last page is partially filled and shared. The table
            already names the copy; the holder count of the source has been dropped.
        """
        copy = None
        if self.tokens_in_last_page:
            index = self.num_tokens // self.page_tokens
            source = self.pages[index]
            if self.pool.holders(source) > 1:
                target = self.pool.allocate()
                self.pages[index] = target
                self.pool.release(source)
                copy = CopyOnWrite(index, source, target)
        while len(self.pages) * self.page_tokens < self.num_tokens + num_new:
            self.pages.append(self.pool.allocate())
        return copy

    def undo(self, copy: CopyOnWrite) -> None:
        """Take back the copy of a `reserve` whose step will not run."""
        self.pages[copy.index] = copy.source
        self.pool.share(copy.source)
        self.pool.release(copy.target)

    def advance(self, num_new: int) -> None:
        """Count `num_new` reserved tokens as holding KV."""
        assert len(self.pages) * self.page_tokens >= self.num_tokens + num_new
        self.num_tokens += num_new

    def trim(self) -> list[PageId]:
        """Drop reserved pages that hold no token. Returns the pages that are gone."""
        keep = -(-self.num_tokens // self.page_tokens)
        dropped = self.pages[keep:]
        del self.pages[keep:]
        return [page for page in dropped if self.pool.release(page)]

    def fork(self, num_pages: int | None = None) -> PageTable:
        """Give a table that shares pages; neither can change what the other sees.

        Args:
            num_pages: Leading pages to share, all full; None: all pages.
        """
        pages = self.pages[:num_pages]
        for page in pages:
            self.pool.share(page)
        num_tokens = self.num_tokens if num_pages is None else num_pages * self.page_tokens
        assert num_tokens <= self.num_tokens
        return PageTable(self.pool, self.page_tokens, pages, num_tokens)

    def drop(self) -> list[PageId]:
        """Release every page. Returns the pages that are gone."""
        self.num_tokens = 0
        return self.trim()
