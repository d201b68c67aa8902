"""Pages, page tables, slots and budgets: ids and counts only, never a tensor."""
