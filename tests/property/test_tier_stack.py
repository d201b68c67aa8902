"""State machines over pool, tables, policies and the tier stack, with absurdly small tiers."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from engine.errors import OverBudget
from engine.memory.page_table import PageTable
from engine.memory.slot_pool import SlotPool
from engine.policies import POLICIES
from engine.sequence import Sequence
from engine.telemetry import Telemetry
from engine.tiers.plan import DiskPlace
from engine.tiers.residency import Arena, Residency
from engine.tiers.stack import TierStack
from engine.types import KVGeometry, SegmentId, Tier

GEOMETRY = KVGeometry(
    num_layers=1, num_kv_heads=1, head_dim=1, dtype="float32", page_tokens=2, segment_tokens=8
)


class StackMachine(RuleBasedStateMachine):
    """Steps, forks, drops, saves and failed steps in any order.

    `written` is the model: which token of which page is where, told by the plans alone.
    """

    sequences = Bundle("sequences")

    @initialize(
        device=st.integers(1, 9), host=st.integers(4, 12), policy=st.sampled_from(sorted(POLICIES))
    )
    def start(self, device: int, host: int, policy: str) -> None:
        self.telemetry = Telemetry()
        residency = Residency(
            device=Arena(SlotPool(device), POLICIES[policy]()),
            host=Arena(SlotPool(host), POLICIES[policy]()),
            page_bytes=GEOMETRY.page_bytes,
            telemetry=self.telemetry,
            disk_bytes=lambda: 0,
        )
        self.stack = TierStack(GEOMETRY, 16, residency)
        self.slots: dict[tuple[Tier, int], list[str | None]] = {}
        self.disk: dict[tuple[int, int], list[str | None]] = {}
        self.truth: dict[int, list[str]] = {}
        self.names = 0

    def _name(self) -> str:
        self.names += 1
        return f"t{self.names}"

    @rule(target=sequences, on_disk=st.booleans())
    def new_sequence(self, on_disk: bool):
        on_disk = on_disk and not self.disk and not any(s.on_disk for s in self.live())
        sequence = Sequence(PageTable(self.stack.pool, 2), on_disk=on_disk)
        self.truth[id(sequence)] = []
        self.kept = [*getattr(self, "kept", []), sequence]
        return sequence

    def live(self) -> list[Sequence]:
        return getattr(self, "kept", [])

    @rule(sequence=sequences, count=st.integers(1, 20), fails=st.booleans())
    def step(self, sequence: Sequence, count: int, fails: bool) -> None:
        first = sequence.num_tokens
        if first % 8:
            count = min(count, 8 - first % 8)
        before = [(p, list(s.table.pages)) for p, s in enumerate(self.live()) if s is not sequence]
        try:
            plan = self.stack.plan_step(sequence, count)
        except OverBudget:
            self.check_tokens(sequence)
            return
        for copy in plan.copies:
            self.slots[copy.tier, copy.target] = list(self.slots[copy.tier, copy.source])
        names = [self._name() for _ in range(count)]
        for target in plan.targets:
            begin = target.first_token - first
            for tier, slot in ((Tier.DEVICE, target.device), (Tier.HOST, target.host)):
                if slot is not None:
                    if target.offset == 0:
                        self.slots[tier, slot] = [None, None]
                    content = self.slots[tier, slot]
                    content[target.offset : target.offset + target.num_tokens] = names[
                        begin : begin + target.num_tokens
                    ]
        assert list(self.read_past(plan)) == self.truth[id(sequence)]
        for segment in plan.direct:
            for index in range(4):
                begin = segment * 8 + index * 2 - first
                self.disk[segment, index] = list(names[begin : begin + 2])
        if fails:
            self.stack.abort(sequence, plan)
            for segment in plan.direct:
                for index in range(4):
                    del self.disk[segment, index]
        else:
            self.stack.complete(sequence, plan)
            self.truth[id(sequence)] += names
        for position, pages in before:
            assert self.live()[position].table.pages == pages, "another sequence's table changed"

    def read_past(self, plan):
        """What attention would read, token by token, promotions included."""
        for part in plan.parts:
            for number, source in enumerate(part.sources):
                if source.tier is Tier.DISK:
                    content = self.disk[source.place.segment, source.place.index]
                else:
                    content = self.slots[source.tier, source.slot]
                if source.promote is not None:
                    self.slots[Tier.DEVICE, source.promote] = list(content)
                begin = part.first_token + number * 2
                yield from content[: max(0, min(2, plan.first_token - begin))]

    @rule(sequence=sequences)
    def save(self, sequence: Sequence) -> None:
        """Write every full page that lies only in memory, as a commit does."""
        if not sequence.on_disk:
            return
        for index in self.stack.unsaved(sequence, sequence.num_tokens // 2):
            page = sequence.table.pages[index]
            slot = self.stack.residency.of(page).host
            place = DiskPlace(SegmentId(index // 4), index % 4)
            self.disk[place.segment, place.index] = list(self.slots[Tier.HOST, slot])
            self.stack.residency.settle(page, disk=place)

    @rule(target=sequences, sequence=sequences)
    def fork(self, sequence: Sequence):
        if len(self.live()) > 4:
            return multiple()
        twin = Sequence(sequence.table.fork(), on_disk=False)
        self.truth[id(twin)] = list(self.truth[id(sequence)])
        self.kept.append(twin)
        return twin

    @rule(sequence=consumes(sequences))
    def drop(self, sequence: Sequence) -> None:
        self.stack.residency.forget(sequence.table.drop())
        self.kept.remove(sequence)

    @rule(sequence=sequences)
    def check_tokens(self, sequence: Sequence) -> None:
        """Every token of every live sequence can still be found where residency says."""
        for index, page in enumerate(sequence.table.pages):
            place = self.stack.residency.of(page)
            want = self.truth[id(sequence)][index * 2 : index * 2 + 2]
            for tier, slot in ((Tier.DEVICE, place.device), (Tier.HOST, place.host)):
                if slot is not None:
                    assert self.slots[tier, slot][: len(want)] == want
            if place.disk is not None:
                assert self.disk[place.disk.segment, place.disk.index] == want
            assert place.fastest is not None

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "stack"):
            return
        self.stack.check_integrity()
        self.stack.residency.publish()
        sample = self.telemetry.sample()
        assert sum(tier.pages for tier in sample.tiers) == sample.total_pages
        live = {page for s in self.live() for page in s.table.pages}
        assert live == self.stack.pool.live()


TestStack = StackMachine.TestCase
TestStack.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policy_never_names_a_page_that_may_not_leave(name: str) -> None:
    policy = POLICIES[name]()
    for page in range(10):
        policy.admit(page)
    assert policy.victim(lambda page: page >= 7) in {7, 8, 9}
    assert policy.victim(lambda page: False) is None
    policy.remove(8)
    assert policy.pages() == set(range(10)) - {8}
