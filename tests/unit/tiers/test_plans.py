"""What a step is told to read and to write, and what becomes of the plan."""

from __future__ import annotations

import pytest

from engine.errors import OverBudget
from engine.memory.page_table import PageTable
from engine.memory.slot_pool import SlotPool
from engine.policies import LRU
from engine.sequence import Sequence
from engine.telemetry import Telemetry
from engine.tiers.past import SINK_TOKENS
from engine.tiers.plan import StepPlan
from engine.tiers.residency import Arena, Residency
from engine.tiers.stack import TierStack
from engine.types import KVGeometry, Tier

PAGE, SEGMENT, PART = 16, 64, 128
GEOMETRY = KVGeometry(1, 1, 1, "float32", PAGE, SEGMENT)


def stack(device: int = 50, host: int = 50, reach: int | None = None) -> TierStack:
    residency = Residency(
        device=Arena(SlotPool(device), LRU()),
        host=Arena(SlotPool(host), LRU()),
        page_bytes=GEOMETRY.page_bytes,
        disk_page_bytes=GEOMETRY.page_bytes,
        telemetry=Telemetry(),
        disk_bytes=lambda: 0,
    )
    return TierStack(GEOMETRY, PART, residency, reach)


def sequence(made: TierStack, num_tokens: int = 0, *, on_disk: bool = False) -> Sequence:
    new = Sequence(PageTable(made.pool, PAGE), on_disk=on_disk)
    for begin in range(0, num_tokens, SEGMENT):
        step(made, new, min(SEGMENT, num_tokens - begin))
    return new


def step(made: TierStack, of: Sequence, num_tokens: int) -> StepPlan:
    plan = made.plan_step(of, num_tokens)
    made.complete(of, plan)
    return plan


def parts(plan: StepPlan) -> list[tuple[int, int, bool]]:
    return [(part.first_token, part.num_tokens, part.own) for part in plan.parts]


def test_parts_end_at_fixed_positions_whatever_the_step() -> None:
    made = stack()
    grown = sequence(made, 300)
    assert parts(made.plan_step(grown, 20)) == [
        (0, 128, False),
        (128, 128, False),
        (256, 44, False),
    ]


def test_the_single_token_of_a_decode_step_is_the_last_of_its_part() -> None:
    made = stack()
    assert parts(step(made, sequence(made, 300), 1))[-1] == (256, 45, True)
    assert parts(step(made, sequence(made, 256), 1))[-1] == (256, 1, True)
    assert parts(step(made, sequence(made), 1)) == [(0, 1, True)]


def test_a_first_step_has_no_past() -> None:
    made = stack()
    plan = made.plan_step(sequence(made), 40)
    assert plan.parts == ()
    assert [(t.first_token, t.offset, t.num_tokens) for t in plan.targets] == [
        (0, 0, 16),
        (16, 0, 16),
        (32, 0, 8),
    ]


def test_a_step_goes_on_in_the_page_that_is_not_full() -> None:
    made = stack()
    grown = sequence(made, 40)
    last = grown.table.pages[-1]
    first, second = made.plan_step(grown, 20).targets
    assert (first.page, first.offset, first.num_tokens) == (last, 8, 8)
    assert (second.offset, second.num_tokens) == (0, 12)


@pytest.mark.parametrize(
    ("before", "new", "segments"),
    [
        (0, 128, (0, 1)),
        (64, 64, (1,)),
        (64, 63, ()),
        (40, 24, ()),
        (40, 88, (1,)),
        (0, 150, (0, 1)),
    ],
)
def test_segments_that_a_step_fills_go_straight_to_the_writer(
    before: int, new: int, segments: tuple[int, ...]
) -> None:
    made = stack()
    grown = sequence(made, before, on_disk=True)
    assert made.plan_step(grown, new).direct == segments


def test_a_sequence_that_stays_in_memory_writes_nothing() -> None:
    made = stack()
    assert made.plan_step(sequence(made), 128).direct == ()


def test_pages_of_direct_segments_are_on_disk_once_the_step_is_done() -> None:
    made = stack(host=7)
    grown = sequence(made, on_disk=True)
    plan = made.plan_step(grown, 128)
    places = [made.residency.of(page) for page in grown.table.pages]
    assert all(place.disk is None and place.host is None for place in places)
    made.complete(grown, plan)
    assert [(place.disk.segment, place.disk.index) for place in places] == [
        (segment, index) for segment in range(2) for index in range(4)
    ]
    assert made.unsaved(grown, 8) == []


def test_only_full_pages_that_lie_nowhere_but_in_memory_are_unsaved() -> None:
    made = stack()
    grown = sequence(made, 64, on_disk=True)
    step(made, grown, 40)
    assert made.unsaved(grown, grown.num_tokens // PAGE) == [4, 5]


def test_the_sinks_stay_and_the_newest_pages_take_the_rest() -> None:
    made = stack(device=10)
    sinks = SINK_TOKENS // PAGE
    grown = sequence(made, 320)
    on_device = [
        index
        for index, page in enumerate(grown.table.pages)
        if made.residency.of(page).device is not None
    ]
    assert on_device == [*range(sinks), 18, 19]


def test_neighbouring_pages_take_neighbouring_slots() -> None:
    made = stack()
    grown = sequence(made, 300)
    slots = [made.residency.of(page).device for page in grown.table.pages]
    assert slots == list(range(len(slots)))


def test_missing_pages_come_up_only_into_free_slots() -> None:
    made = stack(device=SINK_TOKENS // PAGE + 2)
    grown = sequence(made, 320)
    plan = made.plan_step(grown, 1)
    assert not any(part.lifts for part in plan.parts)
    missing = [s for part in plan.parts for s in part.sources if s.tier is Tier.HOST]
    assert len(missing) > 5


def saved(made: TierStack, num_tokens: int) -> Sequence:
    """A sequence whose pages all lie on disk, as after a resume."""
    adopted = Sequence(PageTable(made.pool, PAGE), on_disk=True)
    made.adopt(adopted, num_tokens)
    return adopted


def served(plan: StepPlan) -> dict[Tier, int]:
    tiers = [source.tier for part in plan.parts for source in part.sources]
    return {tier: tiers.count(tier) for tier in Tier}


def test_what_a_step_streams_stays_in_memory_as_far_as_there_is_room() -> None:
    """20 pages and the one that grows, 5 device slots and 10 host slots: nothing but the first step
    reads all from disk, though the policy would always evict what is needed next."""
    made = stack(device=5, host=10)
    grown = saved(made, 20 * PAGE)
    plan = made.plan_step(grown, 1)
    assert served(plan) == {Tier.DEVICE: 0, Tier.HOST: 0, Tier.DISK: 20}
    made.abort(grown, plan)
    step(made, grown, 1)
    for _ in range(5):
        assert served(step(made, grown, 1)) == {Tier.DEVICE: 5, Tier.HOST: 9, Tier.DISK: 7}
        made.check_integrity()


def test_pages_that_fit_come_up_though_others_have_to_leave() -> None:
    made = stack(device=SINK_TOKENS // PAGE + 6, host=4)
    old, new = saved(made, 128 + 5 * PAGE), saved(made, 4 * PAGE)
    step(made, old, 1)
    found = served(step(made, new, 1))
    assert found == {Tier.DEVICE: 0, Tier.HOST: 0, Tier.DISK: 4}
    assert served(step(made, new, 1))[Tier.DEVICE] == 4 + 1
    made.check_integrity()


def test_pages_gathered_for_an_answer_stay_for_the_next_one() -> None:
    made = stack(device=8, host=40)
    grown = saved(made, 100 * PAGE)
    asked = [30, 31, 32, 50]
    for tier in (Tier.DISK, Tier.HOST):
        into = sequence(made)
        gathered, slots = made.plan_gather(grown, asked, into)
        sources = [source for part in gathered for source in part.sources]
        assert [source.tier for source in sources] == [tier] * 4
        assert len(set(slots)) == 4
        made.residency.forget(into.table.drop())
    made.check_integrity()


def test_what_a_failed_gathering_brought_up_is_not_believed() -> None:
    made = stack(device=8, host=40)
    grown = saved(made, 100 * PAGE)
    into = sequence(made)
    gathered, _ = made.plan_gather(grown, [30, 31], into)
    made.give_up(source for part in gathered for source in part.sources)
    made.residency.forget(into.table.drop())
    assert all(made.residency.of(grown.table.pages[i]).fastest is Tier.DISK for i in (30, 31))
    made.check_integrity()


def test_hits_are_booked_to_the_tier_that_served() -> None:
    made = stack(device=10)
    grown = sequence(made, 320)
    before = made.residency.telemetry.sample().hits
    step(made, grown, 20)
    after = made.residency.telemetry.sample().hits
    assert {tier: after[tier] - before[tier] for tier in Tier} == {
        Tier.DEVICE: 8,  # the two newest made room for the step's own pages
        Tier.HOST: 12,
        Tier.DISK: 0,
    }


@pytest.mark.parametrize(("reach", "first"), [(1, 256), (44, 256), (45, 128), (172, 128), (173, 0)])
def test_pages_that_no_layer_sees_are_not_read(reach: int, first: int) -> None:
    """The first query, at 299, sees `reach` tokens, itself included: back to 300 - reach."""
    made = stack(reach=reach)
    grown = sequence(made, 299)
    assert made.plan_step(grown, 1).parts[0].first_token == first


def test_an_aborted_step_leaves_no_trace() -> None:
    made = stack(device=10)
    grown = sequence(made, 200, on_disk=True)
    before = list(grown.table.pages), grown.num_tokens
    places = [made.residency.of(page).device for page in grown.table.pages]
    made.abort(grown, made.plan_step(grown, 56))
    assert (grown.table.pages, grown.num_tokens) == before
    assert made.pool.live() == set(grown.table.pages)
    made.check_integrity()
    kept = [made.residency.of(page).device for page in grown.table.pages]
    assert all(now in (None, then) for now, then in zip(kept, places, strict=True))


def test_pages_on_their_way_up_leave_again_when_the_step_fails() -> None:
    """They may be half filled."""
    made = stack()
    grown = sequence(made, 300)
    for page in grown.table.pages[:5]:
        made.residency.drop_device(page)
    plan = made.plan_step(grown, 1)
    rising = [source.page for source in plan.parts[0].sources if source.promote is not None]
    assert rising == grown.table.pages[:5]
    made.abort(grown, plan)
    assert all(made.residency.of(page).fastest is Tier.HOST for page in rising)


def test_a_refused_step_changes_nothing_but_what_was_evicted() -> None:
    made = stack(device=3, host=8)
    grown = sequence(made, 120)
    fork = Sequence(grown.table.fork())
    before = list(fork.table.pages)
    with pytest.raises(OverBudget):
        made.plan_step(fork, 5)
    assert fork.table.pages == before == grown.table.pages
    made.check_integrity()


def test_adopted_pages_lie_on_disk_and_the_partial_one_in_memory() -> None:
    made = stack()
    adopted = Sequence(PageTable(made.pool, PAGE), on_disk=True)
    made.adopt(adopted, 150)
    tiers = [made.residency.of(page).fastest for page in adopted.table.pages]
    assert tiers == [Tier.DISK] * 9 + [Tier.HOST]
    place = made.residency.of(adopted.table.pages[6]).disk
    assert place is not None and (place.segment, place.index) == (1, 2)
    made.check_integrity()
