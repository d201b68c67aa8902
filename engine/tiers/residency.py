"""Where every page lies, and which page leaves a full tier.

Owns residency, slots and eviction. Device holds rotated pages; host and disk hold them at rest.
The tiers are inclusive: a page may leave the device tier only while a copy lies below, and the host
tier only while it lies on disk, so that eviction is always a drop and never a write. A host copy of
a page that lies on disk and in the device tier is *spare*: it goes first, for a step misses nothing
of it. Ids only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from engine.errors import OverBudget
from engine.memory.page_table import PageTable
from engine.memory.slot_pool import SlotPool
from engine.policies import EvictionPolicy
from engine.telemetry import Telemetry, TierUse
from engine.tiers.heat import Heat
from engine.tiers.plan import DiskPlace
from engine.tiers.residency_map import draw_map
from engine.types import PageId, SlotId, Tier


@dataclass(slots=True)
class Place:
    """Where one page lies."""

    device: SlotId | None = None
    host: SlotId | None = None
    disk: DiskPlace | None = None
    pinned: bool = False
    """Never leaves the device tier once there (sink pages)."""

    @property
    def fastest(self) -> Tier | None:
        """The tier that would serve the page now; None before its first step is done."""
        if self.device is not None:
            return Tier.DEVICE
        if self.host is not None:
            return Tier.HOST
        return Tier.DISK if self.disk is not None else None


@dataclass(slots=True)
class Arena:
    """The slots of one tier in memory and the policy that empties them."""

    slots: SlotPool
    policy: EvictionPolicy
    evictions: int = 0


@dataclass(slots=True)
class Residency:
    """Places of all pages.

    Args:
        device: Slots and policy of the device tier.
        host: Slots and policy of the host tier.
        page_bytes: Bytes of one page.
        telemetry: Where residency is published.
        disk_bytes: Tells the size of the session file, bytes.
        disk_page_bytes: Bytes of one page there.
        main: The main sequence's pages, for the residency map.
    """

    device: Arena
    host: Arena
    page_bytes: int
    telemetry: Telemetry
    disk_bytes: Callable[[], int]
    disk_page_bytes: int
    main: PageTable | None = None
    _heat: Heat = field(default_factory=Heat)
    _places: dict[PageId, Place] = field(default_factory=dict)
    _reserved: dict[PageId, SlotId] = field(default_factory=dict)
    """Host slots that pages are on their way to."""
    _spare: dict[PageId, None] = field(default_factory=dict)
    """Pages with a spare copy in the host tier, in the order in which they became so."""
    _counts: dict[Tier | None, int] = field(default_factory=lambda: dict.fromkeys([None, *Tier], 0))

    def of(self, page: PageId) -> Place:
        """The place of a live page; read it, change it by the methods below."""
        return self._places[page]

    def add(self, page: PageId, *, pinned: bool = False) -> None:
        """Learn of a new page that lies nowhere yet."""
        self._places[page] = Place(pinned=pinned)
        self._counts[None] += 1

    def forget(self, pages: list[PageId]) -> None:
        """Free every place of pages that nobody holds any more."""
        self.telemetry.trace.drop(pages)
        for page in pages:
            assert page not in self._reserved, "it is on its way"
            place = self._places.pop(page)
            self._counts[place.fastest] -= 1
            self._heat.forget(page, place.fastest)
            self._spare.pop(page, None)
            for arena, slot in ((self.device, place.device), (self.host, place.host)):
                if slot is not None:
                    arena.slots.free(slot)
                    arena.policy.remove(page)

    def settle(
        self,
        page: PageId,
        *,
        device: SlotId | None = None,
        host: SlotId | None = None,
        disk: DiskPlace | None = None,
    ) -> None:
        """Learn that a page has a further place."""
        place = self._places[page]
        before = place.fastest
        if device is not None:
            place.device = device
            self.device.policy.admit(page)
        if host is not None:
            place.host = host
            self.host.policy.admit(page)
        if disk is not None:
            place.disk = disk
        self._recount(page, before)

    def _recount(self, page: PageId, before: Tier | None) -> None:
        """Take note of a page's new places; `before` was its fastest tier."""
        place = self._places[page]
        self._counts[before] -= 1
        self._counts[place.fastest] += 1
        self._heat.move(page, before, place.fastest)
        if None in _places_of(place):
            self._spare.pop(page, None)
        else:
            self._spare[page] = None

    def touch(self, page: PageId, served: Tier) -> None:
        """Take note that a step read the page, and tell the policies.

        Args:
            page: The page.
            served: The tier that gave it; that it came into a faster one by this is no use of it
                there.
        """
        place = self._places[page]
        self._heat.read(page, place.fastest)
        if place.device is not None and served is Tier.DEVICE:
            self.device.policy.touch(page)
        if place.host is not None and served is not Tier.DISK:
            self.host.policy.touch(page)

    def end_step(self) -> None:
        """Take note that a step, or one gathering for an answer, has read all it reads."""
        self._heat.end_step(self._fastest)

    def _fastest(self, page: PageId) -> Tier | None:
        return self._places[page].fastest

    def weigh(self, page: PageId, mass: float) -> None:
        """Tell the policies how much attention a question paid to the page, wherever it lies."""
        self.device.policy.weigh(page, mass)
        self.host.policy.weigh(page, mass)

    def take_device(
        self, page: PageId, after: SlotId | None, busy: Collection[PageId], *, evict: bool = True
    ) -> SlotId | None:
        """Give the page a device slot, evicting if need be.

        Args:
            page: The page to settle.
            after: Slot of the page before it, to lie beside.
            busy: Pages that the step at hand reads or writes; never victims.
            evict: Whether another page may have to leave.

        Returns:
            The slot, or None if nothing may leave.
        """
        arena = self.device
        if evict and not arena.slots.num_free:
            self._make_room(arena, lambda victim: self.may_leave_device(victim, busy))
        slot = arena.slots.allocate(after)
        self.settle(page, device=slot)
        return slot

    def take_host(
        self, page: PageId, busy: Collection[PageId], *, evict: bool = True
    ) -> SlotId | None:
        """Give the page a host slot, as `take_device`; a spare copy leaves in any case."""
        slot = self._host_slot(busy, evict=evict)
        self.settle(page, host=slot)
        return slot

    def _host_slot(self, busy: Collection[PageId], *, evict: bool) -> SlotId | None:
        arena = self.host
        if not arena.slots.num_free:
            spare = next((other for other in self._spare if other not in busy), None)
            if spare is not None:
                self._evict(arena, spare)
            elif evict:
                self._make_room(arena, lambda victim: self._may_leave_host(victim, busy))
        return arena.slots.allocate()

    def reserve_host(self, page: PageId, busy: Collection[PageId]) -> SlotId | None:
        """Take a host slot that the page will come to later, as `take_host`."""
        slot = self._host_slot(busy, evict=True)
        if slot is not None:
            self._reserved[page] = slot
        return slot

    def end_reservation(self, page: PageId, *, came: bool) -> None:
        """The page lies in the slot that was reserved for it, or will not come."""
        slot = self._reserved.pop(page)
        if came and self._places[page].host is None:
            self.settle(page, host=slot)
        else:
            self.host.slots.free(slot)

    def is_live(self, page: PageId) -> bool:
        """Whether there still is such a page."""
        return page in self._places

    def need_host(self, page: PageId, busy: Collection[PageId]) -> SlotId:
        """As `take_host`, for a page that can lie nowhere else.

        Raises:
            OverBudget: The host tier is full of such pages.
        """
        slot = self._places[page].host
        slot = self.take_host(page, busy) if slot is None else slot
        if slot is None:
            raise OverBudget(
                f"the host tier of {self.host.slots.capacity} pages is full of pages that lie "
                "nowhere else",
                "Give more --ram, or a session file by --session so that pages can move there.",
            )
        return slot

    def may_leave_device(self, page: PageId, busy: Collection[PageId]) -> bool:
        """Whether the page may be evicted from the device tier."""
        place = self._places[page]
        below = place.host is not None or place.disk is not None
        return below and not place.pinned and page not in busy

    def _may_leave_host(self, page: PageId, busy: Collection[PageId]) -> bool:
        return self._places[page].disk is not None and page not in busy

    def _make_room(self, arena: Arena, may_leave: Callable[[PageId], bool]) -> None:
        victim = arena.policy.victim(may_leave)
        if victim is not None:
            self._evict(arena, victim)

    def _evict(self, arena: Arena, page: PageId) -> None:
        place = self._places[page]
        before = place.fastest
        if arena is self.device:
            slot, place.device = place.device, None
        else:
            slot, place.host = place.host, None
        assert slot is not None
        arena.slots.free(slot)
        arena.policy.remove(page)
        arena.evictions += 1
        self._recount(page, before)

    def drop_device(self, page: PageId) -> None:
        """Take a page out of the device tier whatever the policy thinks; it lies below."""
        self._evict(self.device, page)

    def drop_host(self, page: PageId) -> None:
        """Take a page out of the host tier whatever the policy thinks; it lies on disk."""
        self._evict(self.host, page)

    def publish(self) -> None:
        """Publish residency as one value: each page under its fastest tier; a map if asked for."""
        rows = [self._row(Tier.DEVICE, self.device), self._row(Tier.HOST, self.host)]
        disk, hot = Tier.DISK, self._heat.hot(Tier.DISK)
        rows.append(
            TierUse(
                disk.value, None, self.disk_bytes(), self._counts[disk], 0,
                hot_pages=hot, hot_bytes=hot * self.disk_page_bytes,
            )
        )  # fmt: skip
        total = sum(self._counts[tier] for tier in Tier)
        self.telemetry.publish_tiers(tuple(rows), total, self._heat.reuse)
        cells = self.telemetry.wanted_map()
        if cells is not None and self.main is not None:
            drawn = draw_map(self.main.pages, cells, self._fastest, self._heat.is_hot)
            self.telemetry.publish_map(drawn)

    def _row(self, tier: Tier, arena: Arena) -> TierUse:
        slots, hot = arena.slots, self._heat.hot(tier)
        return TierUse(
            tier.value,
            capacity_bytes=slots.capacity * self.page_bytes,
            used_bytes=(slots.capacity - slots.num_free) * self.page_bytes,
            pages=self._counts[tier],
            evictions=arena.evictions,
            hot_pages=hot,
            hot_bytes=hot * self.page_bytes,
        )

    def check_integrity(self, live: set[PageId]) -> None:
        """Recount everything; any test or idle loop may call it.

        Args:
            live: Every page the pool believes live.
        """
        assert set(self._places) == live
        for arena, name in ((self.device, "device"), (self.host, "host")):
            held = {
                p: s for p, place in self._places.items() if (s := getattr(place, name)) is not None
            }
            assert len(set(held.values())) == len(held), f"two pages share a {name} slot"
            coming = len(self._reserved) if arena is self.host else 0
            assert len(held) + coming + arena.slots.num_free == arena.slots.capacity
            assert set(held) == arena.policy.pages()
        all_three = [p for p, place in self._places.items() if None not in _places_of(place)]
        assert set(all_three) == set(self._spare)
        for tier in [None, *Tier]:
            counted = sum(place.fastest is tier for place in self._places.values())
            assert counted == self._counts[tier], tier
            hot = sum(
                place.fastest is tier and self._heat.is_hot(page)
                for page, place in self._places.items()
            )
            assert hot == self._heat.hot(tier), tier


def _places_of(place: Place) -> tuple[SlotId | None, SlotId | None, DiskPlace | None]:
    return place.device, place.host, place.disk
