"""Component sheets for the long report: one page of seeded field notes per component.

Owns how the sentence patterns of `sheets.toml` are combined. Each sheet states one measured value
that no other sheet asks for. Knows nothing of paper.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bridge_report.facts import Fact, number

SPANS = 14
SIDES = ["seaward", "landward", "northern", "southern"]
INSPECTORS = [
    "A. Brandt", "C. Novak", "D. Sorley", "E. Marchetti", "F. Oyelaran", "H. Tveit", "J. Pascoe",
    "L. Whitcombe", "M. Duarte", "R. Sandhu",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sheet:
    """One component, as found."""

    title: str
    span: int
    details: tuple[tuple[str, str], ...]
    paragraphs: tuple[str, ...]
    """Each may name the fact as `{key}`, once."""
    column: str
    readings: tuple[tuple[str, str], ...]
    log: tuple[tuple[str, str], ...]
    fact: Fact


@dataclass(frozen=True, slots=True)
class _Component:
    family: dict[str, Any]
    span: int
    position: int

    @property
    def code(self) -> str:
        return f"{self.family['code']}{self.span}-{self.position:02d}"


def draw_sheets(seed: int, count: int) -> list[Sheet]:
    """Make `count` sheets in the order of the spans, about as many for each span.

    Raises:
        ValueError: The bridge has fewer components than that.
    """
    patterns = tomllib.loads(Path(__file__).with_name("sheets.toml").read_text("utf-8"))
    rng = Random(f"sheets {seed}")
    chosen = _choose(rng, list(patterns["families"].values()), count)
    return [_sheet(rng, patterns["shared"], component) for component in chosen]


def _choose(rng: Random, families: list[dict[str, Any]], count: int) -> list[_Component]:
    by_span: list[list[_Component]] = []
    for span in range(1, SPANS + 1):
        components = [
            _Component(family, span, position)
            for family in families
            if span <= family.get("spans", SPANS)
            for position in range(1, family["per_span"] + 1)
        ]
        rng.shuffle(components)
        by_span.append(components)
    available = sum(map(len, by_span))
    if count > available:
        raise ValueError(f"{count} component sheets asked for; the bridge has {available}")
    chosen: list[_Component] = []
    while len(chosen) < count:
        for components in by_span:
            if components and len(chosen) < count:
                chosen.append(components.pop())
    return sorted(chosen, key=lambda component: component.span)


def _sheet(rng: Random, shared: dict[str, list[str]], component: _Component) -> Sheet:
    family = component.family
    measured = rng.uniform(family["low"], family["high"])
    before = measured * (rng.uniform(1.02, 1.08) if _falls(family) else rng.uniform(0.78, 0.97))
    code, key = component.code, f"sheet_{component.code}"
    photo = rng.randint(100, 900)
    words = {
        "name": f"{family['title'].lower()} {code}",
        "v": f"{{{key}}}",
        "old": _shown(before, family),
        "unit": family["unit"] if family["unit"] == "%" else f" {family['unit']}",
        "side": rng.choice(SIDES),
        "a": rng.randint(3, 14),
        "b": rng.randint(41, 58),
        "c": rng.randint(3, 8),
        "p": photo,
        "q": photo + rng.randint(1, 4),
    }

    def one(options: list[str]) -> str:
        sentence = rng.choice(options).format_map(words)
        return sentence[:1].upper() + sentence[1:]

    minor = [text.format_map(words) for text in rng.sample(shared["minor"], 3)]
    note = one(shared["event"]) + rng.choice(shared["consequence"]) + "."
    paragraphs = [
        f"{one(shared['opening'])} {one(family['finding'])} {one(shared['history'])}",
        f"{one(family['cause'])} {minor[0]}",
        f"{note} {minor[1]}" if rng.random() < 0.6 else f"{minor[1]} {note} {minor[2]}",
        f"<b>Action.</b> {one(family['action'])} Priority: {one(shared['priority']).lower()}. "
        f"{one(shared['closing'])}",
    ]
    return Sheet(
        title=f"{family['title']} {code}",
        span=component.span,
        details=_details(rng, shared, component),
        paragraphs=tuple(paragraphs),
        column=f"{family['where'].capitalize()} ({family['unit']})",
        readings=_readings(rng, measured, family),
        log=_log(rng, shared["log"]),
        fact=number(key, _shown(measured, family), family["question"].format(code=code)),
    )


def _details(
    rng: Random, shared: dict[str, list[str]], component: _Component
) -> tuple[tuple[str, str], ...]:
    before = rng.choice([1, 2, 2, 2, 3])
    return (
        ("Span", str(component.span)),
        ("Date", f"{rng.randint(6, 24)} September 2024"),
        ("Inspector", rng.choice(INSPECTORS)),
        ("Grade 2018 / now", f"{before} / {before + rng.choice([0, 0, 0, 1])}"),
        ("Access", rng.choice(shared["access"])),
        ("Weather", rng.choice(shared["weather"])),
    )


def _readings(rng: Random, measured: float, family: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Readings at other places, none of them worse than the one that the text quotes."""
    places = rng.sample(["upper end", "lower end", "quarter point", "middle", "inner edge"], 4)
    low, high = (1.02, 1.12) if _falls(family) else (0.55, 0.9)
    return tuple((place, _shown(measured * rng.uniform(low, high), family)) for place in places)


def _falls(family: dict[str, Any]) -> bool:
    """Whether the measured value gets smaller as the component gets worse."""
    return bool(family.get("falling", False))


def _shown(value: float, family: dict[str, Any]) -> str:
    return f"{value:.{family['digits']}f}"


def _log(rng: Random, entries: list[str]) -> tuple[tuple[str, str], ...]:
    """A few lines of the day's log, in order of time."""
    minute = rng.randint(7 * 60, 14 * 60)
    rows = []
    for index in sorted(rng.sample(range(len(entries)), rng.randint(4, 6))):
        rows.append((f"{minute // 60}:{minute % 60:02d}", entries[index]))
        minute += rng.randint(6, 38)
    return tuple(rows)
