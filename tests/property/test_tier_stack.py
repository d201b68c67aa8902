"""A state machine over pool, tables, policies and the tier stack, with absurdly small tiers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import engine.tiers.past
import engine.tiers.stack
from engine.errors import OverBudget, StorageError
from engine.memory.page_table import PageTable
from engine.memory.slot_pool import SlotPool
from engine.policies import POLICIES
from engine.policies.prefetch import PrefetchPolicy
from engine.sequence import Sequence
from engine.telemetry import Telemetry
from engine.tiers.plan import DiskPlace, PageSource, StepPlan
from engine.tiers.prefetch import Prefetcher
from engine.tiers.residency import Arena, Residency
from engine.tiers.stack import TierStack
from engine.types import KVGeometry, PageId, SegmentId, SlotId, Tier

PAGE, SEGMENT, STEP, PART = 4, 16, 32, 32
PER_SEGMENT = SEGMENT // PAGE
GEOMETRY = KVGeometry(
    num_layers=1,
    num_kv_heads=1,
    head_dim=1,
    dtype="float32",
    page_tokens=PAGE,
    segment_tokens=SEGMENT,
)
PICK = st.integers(0, 5)
SELDOM = st.sampled_from([False, False, False, True])


@pytest.fixture(autouse=True)
def few_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every page of such short sequences would be a sink and none ever evicted."""
    for module in (engine.tiers.stack, engine.tiers.past):
        monkeypatch.setattr(module, "SINK_TOKENS", 8)


class Wishes(PrefetchPolicy):
    """Wants whatever the machine says."""

    def __init__(self) -> None:
        self.pages: list[PageId] = []

    def wanted(self) -> Iterator[PageId]:
        yield from self.pages


class Loads:
    """Pages on their way from disk; they come in any order, or not at all."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[None], DiskPlace, SlotId]] = []

    def load(self, place: DiskPlace, slot: SlotId) -> Future[None]:
        load: Future[None] = Future()
        self.waiting.append((load, place, slot))
        return load


class Slots:
    """Stands for the host tier: the memory of a slot is its number."""

    def slices_of(self, slot: SlotId) -> SlotId:
        return slot


class StackMachine(RuleBasedStateMachine):
    """Steps, forks, drops, saves, evictions, prefetches and failed steps in any order.

    `slots` and `disk` are the model: what a page's bytes would be, as told by the plans alone.
    `truth` is what each sequence consists of. The two must never part.
    """

    @initialize(
        device=st.integers(1, 12),
        host=st.integers(6, 50),
        policy=st.sampled_from(sorted(POLICIES)),
        reach=st.none() | st.integers(1, 80),
        on_disk=st.sampled_from([True, True, False]),
        count=st.integers(1, 60),
    )
    def start(
        self, device: int, host: int, policy: str, reach: int | None, on_disk: bool, count: int
    ) -> None:
        self.telemetry = Telemetry()
        residency = Residency(
            device=Arena(SlotPool(device), POLICIES[policy]()),
            host=Arena(SlotPool(host), POLICIES[policy]()),
            page_bytes=GEOMETRY.page_bytes,
            disk_page_bytes=GEOMETRY.page_bytes,
            telemetry=self.telemetry,
            disk_bytes=lambda: 0,
        )
        self.stack = TierStack(GEOMETRY, PART, residency, reach)
        self.wishes, self.loads = Wishes(), Loads()
        self.prefetcher = Prefetcher(
            [self.wishes],
            residency,
            Slots(),
            self.loads,
            self.telemetry,  # type: ignore[arg-type]
        )
        self.stack.past.prefetcher = self.prefetcher
        self.slots: dict[tuple[Tier, int], list[str | None]] = {}
        self.disk: dict[DiskPlace, list[str]] = {}
        self.live: list[Sequence] = []
        self.truth: dict[Sequence, list[str]] = {}
        self.names = 0
        self.begin(on_disk)
        self.compute(0, count, fails=False)

    def begin(self, on_disk: bool) -> None:
        sequence = Sequence(PageTable(self.stack.pool, GEOMETRY.page_tokens), on_disk=on_disk)
        self.live.append(sequence)
        self.truth[sequence] = []

    # -- what may happen ---------------------------------------------------------------------

    @rule(pick=PICK, count=st.integers(1, 80), fails=SELDOM)
    def compute(self, pick: int, count: int, fails: bool) -> None:
        """Steps end at segment borders, as the engine cuts them; the last one may fail."""
        sequence = self.live[pick % len(self.live)]
        end = sequence.num_tokens + count
        while (first := sequence.num_tokens) < end:
            stop = min(end, first - first % SEGMENT + (SEGMENT if first % SEGMENT else STEP))
            if not self.step(sequence, stop - first, fails and stop == end):
                return

    def step(self, sequence: Sequence, count: int, fails: bool) -> bool:
        """Run one step; returns whether it was done."""
        others = {s: list(s.table.pages) for s in self.live if s is not sequence}
        before = list(sequence.table.pages)
        try:
            plan = self.stack.plan_step(sequence, count)
        except OverBudget:
            assert sequence.table.pages == before, "a refused step changed the table"
            return False
        for copy in plan.copies:
            self.slots[copy.tier, copy.target] = list(self.slots[copy.tier, copy.source])
        names = [f"t{self.names + i}" for i in range(count)]
        self.names += count
        self.store(plan, names)
        self.check_past(plan, self.truth[sequence])
        if fails:
            self.stack.abort(sequence, plan)
        else:
            self.stack.complete(sequence, plan)
            self.truth[sequence] += names
        assert {s: s.table.pages for s in others} == others, "another sequence's table changed"
        return not fails

    @rule(pick=PICK, count=st.integers(1, 5))
    def decode(self, pick: int, count: int) -> None:
        for _ in range(count):
            self.compute(pick, 1, fails=False)

    @rule(segments_only=st.booleans())
    def save(self, segments_only: bool) -> None:
        """Write full pages that lie only in memory, all or those of full segments."""
        for sequence in self.live:
            if sequence.on_disk:
                end = sequence.num_tokens // PAGE
                end -= end % PER_SEGMENT if segments_only else 0
                for index in self.stack.unsaved(sequence, end):
                    page = sequence.table.pages[index]
                    slot = self.stack.residency.of(page).host
                    place = DiskPlace(SegmentId(index // PER_SEGMENT), index % PER_SEGMENT)
                    self.disk[place] = list(self.slots[Tier.HOST, slot])
                    self.stack.residency.settle(page, disk=place)

    @precondition(lambda self: len(self.live) < 4)
    @rule(pick=PICK, count=st.integers(1, 20), fails=SELDOM)
    def fork(self, pick: int, count: int, fails: bool) -> None:
        """Fork and go on at once with one of the two, while the last page is shared."""
        parent = self.live[pick % len(self.live)]
        twin = Sequence(parent.table.fork(), on_disk=False)
        self.live.append(twin)
        self.truth[twin] = list(self.truth[parent])
        self.compute(self.live.index(parent) if count % 2 else -1, count, fails)

    @precondition(lambda self: len(self.live) < 4)
    @rule(pick=PICK, indices=st.lists(st.integers(0, 30), min_size=1, max_size=6), fails=SELDOM)
    def gather(self, pick: int, indices: list[int], fails: bool) -> None:
        """Copy some full pages of a sequence into one of their own; the copying may fail."""
        sequence = self.live[pick % len(self.live)]
        if not (full := sequence.num_tokens // PAGE):
            return
        chosen = list(dict.fromkeys(index % full for index in indices))
        into = Sequence(PageTable(self.stack.pool, PAGE), on_disk=False)
        try:
            parts, slots = self.stack.plan_gather(sequence, chosen, into)
        except OverBudget:
            assert not into.table.pages
            return
        sources = [source for part in parts for source in part.sources]
        copies = [list(self.bring(source)) for source in sources]
        tokens = self.truth[sequence]
        assert copies == [tokens[index * PAGE : (index + 1) * PAGE] for index in chosen]
        self.slots |= {(Tier.HOST, slot): copy for slot, copy in zip(slots, copies, strict=True)}
        if fails:
            self.stack.give_up(sources)
            self.stack.residency.forget(into.table.drop())
            return
        into.table.advance(len(chosen) * PAGE)
        self.live.append(into)
        self.truth[into] = [token for copy in copies for token in copy]

    @rule(pick=PICK, masses=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20))
    def weigh(self, pick: int, masses: list[float]) -> None:
        """A question looks at the first pages of a sequence."""
        sequence = self.live[pick % len(self.live)]
        self.stack.weigh(sequence, 0, masses[: len(sequence.table.pages)])

    @precondition(lambda self: len(self.live) > 1)
    @rule(pick=PICK)
    def drop(self, pick: int) -> None:
        sequence = self.live.pop(pick % len(self.live))
        self.forget(sequence.table.drop())
        del self.truth[sequence]

    def forget(self, pages: list[PageId]) -> None:
        self.prefetcher.forget(pages)
        self.stack.residency.forget(pages)

    @rule(pick=PICK, first=st.integers(0, 15), count=st.integers(0, 20))
    def prefetch(self, pick: int, first: int, count: int) -> None:
        """A policy wants some pages; those of before are wanted no more."""
        self.wishes.pages = self.live[pick % len(self.live)].table.pages[first : first + count]
        self.prefetcher.run()

    @rule(pick=PICK, fails=SELDOM)
    def arrive(self, pick: int, fails: bool) -> None:
        """One of the pages on their way comes, or cannot be read."""
        if self.loads.waiting:
            load, place, slot = self.loads.waiting.pop(pick % len(self.loads.waiting))
            if load.set_running_or_notify_cancel():
                if fails:
                    self.slots[Tier.HOST, slot] = [None] * PAGE
                    load.set_exception(StorageError("gone", ""))
                else:
                    self.slots[Tier.HOST, slot] = list(self.disk[place])
                    load.set_result(None)

    @precondition(lambda self: len(self.live) == 1)
    @rule(on_disk=st.booleans())
    def start_again(self, on_disk: bool) -> None:
        """Drop the last sequence; the next one takes its places on disk."""
        self.forget(self.live.pop().table.drop())
        self.truth.clear()
        self.begin(on_disk)

    @rule(pick=PICK, first=st.integers(0, 15), count=st.integers(1, 8))
    def evict(self, pick: int, first: int, count: int) -> None:
        """Any page that may leave the device tier can leave it; slots become free."""
        for page in self.live[pick % len(self.live)].table.pages[first : first + count]:
            is_there = self.stack.residency.of(page).device is not None
            if is_there and self.stack.residency.may_leave_device(page, ()):
                self.stack.residency.drop_device(page)

    # -- what a step does --------------------------------------------------------------------

    def store(self, plan: StepPlan, names: list[str]) -> None:
        """Put the step's own tokens where the plan says."""
        for target in plan.targets:
            begin = target.first_token - plan.first_token
            own = names[begin : begin + target.num_tokens]
            for tier, slot in ((Tier.DEVICE, target.device), (Tier.HOST, target.host)):
                if slot is not None:
                    page = [None] * PAGE if target.offset == 0 else self.slots[tier, slot]
                    page[target.offset : target.offset + target.num_tokens] = own
                    self.slots[tier, slot] = page
        for segment in plan.direct:
            for index in range(PER_SEGMENT):
                begin = segment * SEGMENT + index * PAGE - plan.first_token
                self.disk[DiskPlace(segment, index)] = names[begin : begin + PAGE]

    def check_past(self, plan: StepPlan, truth: list[str]) -> None:
        """Attention reads the right tokens, at least as far back as some layer sees."""
        reach = self.stack.reach
        read = [
            token
            for part in plan.parts
            for number, source in enumerate(part.sources)
            for token in self.bring(source)[: plan.first_token - part.first_token - PAGE * number]
        ]
        assert read == truth[len(truth) - len(read) :]
        assert len(read) >= (len(truth) if reach is None else min(len(truth), reach - 1))

    def bring(self, source: PageSource) -> list[str | None]:
        """What attention gets of a page; fills its device slot if it comes up."""
        if source.tier is Tier.DISK:
            page = self.disk[source.place]
        else:
            page = self.slots[source.tier, source.slot]
        if source.promote is not None:
            self.slots[Tier.DEVICE, source.promote] = list(page)
        if source.keep is not None:
            self.slots[Tier.HOST, source.keep] = list(page)
        return page

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def every_copy_of_every_page_is_right(self) -> None:
        for sequence, tokens in self.truth.items():
            for index, page in enumerate(sequence.table.pages):
                place = self.stack.residency.of(page)
                want = tokens[index * PAGE : (index + 1) * PAGE]
                assert place.fastest is not None
                for tier, slot in ((Tier.DEVICE, place.device), (Tier.HOST, place.host)):
                    assert slot is None or self.slots[tier, slot][: len(want)] == want
                assert place.disk is None or self.disk[place.disk] == want

    @invariant()
    def everything_adds_up(self) -> None:
        self.stack.check_integrity()
        self.stack.residency.publish()
        sample = self.telemetry.sample()
        assert sum(tier.pages for tier in sample.tiers) == sample.total_pages
        assert {page for s in self.live for page in s.table.pages} == self.stack.pool.live()
        counts = self.prefetcher.counts
        assert 0 <= counts.useful + counts.wasted <= counts.issued
        assert all(0 <= tier.hot_pages <= tier.pages for tier in sample.tiers)

    @invariant()
    def the_map_shows_where_the_main_sequence_lies(self) -> None:
        residency, pages = self.stack.residency, self.live[0].table.pages
        residency.main, self.telemetry._map_due = self.live[0].table, 0.0
        self.telemetry.ask_map(1000)
        residency.publish()
        drawn = self.telemetry.ask_map(1000)
        assert drawn is not None and drawn.num_pages == len(pages)
        assert [cell.tier for cell in drawn.cells] == [residency.of(p).fastest for p in pages]


TestStack = StackMachine.TestCase
TestStack.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policy_never_names_a_page_that_may_not_leave(name: str) -> None:
    policy = POLICIES[name]()
    for page in range(10):
        policy.admit(page)
    assert policy.victim(lambda page: page >= 7) in {7, 8, 9}
    assert policy.victim(lambda page: False) is None
    policy.remove(8)
    assert policy.pages() == set(range(10)) - {8}
