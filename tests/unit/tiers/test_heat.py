"""Hot and cold pages, and how long pages wait for their next read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.sample import HOT_STEPS
from engine.tiers.heat import Heat
from engine.types import PageId, Tier

PAGES = st.integers(0, 5).map(PageId)
TIERS = st.sampled_from([None, *Tier])
EVENTS = st.one_of(
    st.tuples(st.just("read"), PAGES),
    st.tuples(st.just("move"), PAGES, TIERS),
    st.tuples(st.just("forget"), PAGES),
    st.tuples(st.just("step"), st.integers(1, HOT_STEPS)),
)


@given(st.lists(EVENTS, max_size=80))
def test_the_counts_are_those_of_a_full_count(events: list[tuple[object, ...]]) -> None:
    """Beside a model that keeps every read and counts over all pages each time."""
    heat, step = Heat(), 0
    last: dict[PageId, int] = {}
    tiers = dict.fromkeys(map(PageId, range(6)), Tier.DISK)
    distances: list[int] = []
    for kind, what, *more in events:
        if kind == "read":
            heat.read(what, tiers[what])
            if last.get(what, step) < step:
                distances.append(step - last[what])
            last[what] = step
        elif kind == "move":
            heat.move(what, tiers[what], more[0])
            tiers[what] = more[0]
        elif kind == "forget":
            heat.forget(what, tiers[what])
            last.pop(what, None)
        else:
            for _ in range(what):
                heat.end_step(tiers.__getitem__)
            step += what
        hot = {page for page, at in last.items() if at >= step - HOT_STEPS}
        assert {page for page in tiers if heat.is_hot(page)} == hot
        for tier in [None, *Tier]:
            assert heat.hot(tier) == sum(tiers[page] is tier for page in hot)
        for octave, count in enumerate(heat.reuse):
            assert count == sum(2**octave <= d < 2 ** (octave + 1) for d in distances)
        assert sum(heat.reuse) == len(distances)


def test_a_page_cools_when_the_last_steps_have_not_read_it() -> None:
    heat, page = Heat(), PageId(3)
    heat.read(page, Tier.HOST)
    for _ in range(HOT_STEPS):
        heat.end_step(lambda page: Tier.HOST)
        assert heat.is_hot(page) and heat.hot(Tier.HOST) == 1
    heat.end_step(lambda page: Tier.HOST)
    assert not heat.is_hot(page) and heat.hot(Tier.HOST) == 0


def test_only_the_last_steps_are_remembered() -> None:
    """A run takes millions of steps."""
    heat = Heat()
    for step in range(100):
        heat.read(PageId(step), Tier.DISK)
        heat.end_step(lambda page: Tier.DISK)
    assert sum(map(len, heat._read)) <= HOT_STEPS
