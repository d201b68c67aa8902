"""The facts of the report, drawn from a seed, and the questions that they answer.

Owns every number, name and date that the prose of `report.md` and its tables mention. Knows no
page: where a fact is stated is found out while the report is typeset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

MONTHS = "January February March April May June July August September October November December"


@dataclass(frozen=True, slots=True)
class Fact:
    """A value, and the question whose answer it is."""

    key: str
    value: str
    question: str = ""
    """Empty: the value is mentioned but not asked for."""
    accept: tuple[str, ...] = ()
    """Regular expressions, any of which a right answer contains; none: the value as a word."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """What a right answer is recognised by."""
        return self.accept or (rf"\b{re.escape(self.value)}\b",)


@dataclass(frozen=True, slots=True)
class Repair:
    """A row of the table of costs."""

    item: str
    section: str
    urgency: str
    cost: int
    """Pounds."""


@dataclass(frozen=True, slots=True)
class BridgeFacts:
    """Everything that the report states."""

    by_key: dict[str, Fact]
    repairs: tuple[Repair, ...]
    ratings: tuple[tuple[str, int, str, str, str], ...]
    """Member group, number of members, grade in 2018, grade now, remark."""


def draw_facts(seed: int) -> BridgeFacts:
    """Make the facts that belong to a seed; equal seeds give equal facts."""
    rng = Random(seed)
    repairs = _draw_repairs(rng)
    facts = [*_people_and_places(rng), *_history(rng), *_findings(rng), *_money(rng, repairs)]
    by_key = {fact.key: fact for fact in facts}
    assert len(by_key) == len(facts)
    return BridgeFacts(by_key, repairs, _draw_ratings(by_key))


def number(key: str, value: float | str, question: str = "") -> Fact:
    """A number, or its text; an answer may leave out the thousands separator."""
    text = value if isinstance(value, str) else f"{value:,}"
    pattern = rf"(?<![\d.,]){re.escape(text).replace(',', ',?')}(?![\d]|[.,]\d)"
    return Fact(key, text, question, (pattern,))


def _date(key: str, day: int, month: int, year: int, question: str = "") -> Fact:
    name = MONTHS.split()[month - 1]
    patterns = (rf"\b{day}(\w\w)? (of )?{name},? {year}", rf"{name} {day}(\w\w)?,? {year}")
    return Fact(key, f"{day} {name} {year}", question, patterns)


def _person(key: str, name: str, question: str = "") -> Fact:
    """A person; an answer may give the surname alone."""
    return Fact(key, name, question, (rf"\b{name.split()[-1]}\b",))


def _people_and_places(rng: Random) -> list[Fact]:
    first = rng.sample(["Mara", "Inga", "Greta", "Nadia", "Ruth", "Elsbeth", "Tamsin"], 2)
    last = rng.sample(["Ellison", "Okafor", "Lindqvist", "Petrov", "Hallam", "Quigley"], 2)
    diver = rng.choice(["Tomas Averin", "Callum Brandt", "Piet Vasko", "Owen Thackray"])
    boat = rng.choice(["Kittiwake", "Sandpiper", "Guillemot", "Turnstone"])
    town = rng.choice(["Tarn Head", "Skelby", "Marrow Bay", "Inverlay"])
    contractor = rng.choice(["Calder and Voss", "Norbury Marine", "Thorne Brothers"])
    designer = rng.choice(["Anselm Rourke", "Hugo Fairweather", "Edith Castellan"])
    return [
        _person("chief", f"{first[0]} {last[0]}", "What is the name of the chief inspector?"),
        _person("bridge_master", f"{first[1]} {last[1]}", "Who is the bridge master?"),
        _person("dive_leader", diver, "What is the name of the diver who led the underwater work?"),
        Fact("boat", boat, "What is the name of the workboat?"),
        Fact("north_town", town, "What is the name of the fishing village on the northern shore?"),
        Fact("contractor", contractor, "Who were the expansion joints replaced by in 2021?"),
        _person("designer", designer, "Who was the bridge designed by?"),
        Fact("coaster", rng.choice(["Annelise", "Borealis", "Corrie Lass", "Maid of Orne"])),
        Fact("airfield", rng.choice(["Staveley Tower", "Ormsey Field", "Kestrel Airport"])),
    ]


def _history(rng: Random) -> list[Fact]:
    year, day = 2024, rng.randint(2, 6)
    return [
        _date("start", day, 9, year),
        _date("finish", day + 22, 9, year),
        _date(
            "opened",
            rng.randint(3, 28),
            rng.choice([4, 5, 6]),
            rng.randint(1971, 1977),
            "When was the bridge opened to traffic?",
        ),
        number(
            "length",
            rng.randrange(1204, 1296, 2),
            "How many metres does the bridge measure from abutment to abutment?",
        ),
        number("main_span", rng.randrange(172, 198, 2), "How many metres long is Span 8?"),
        number("stays", 20),
        number(
            "traffic",
            rng.randrange(10_200, 13_800, 20),
            "How many vehicles use the bridge on an average weekday?",
        ),
        number("joints", rng.randint(5, 9), "How many expansion joints were replaced in 2021?"),
        number("weight_limit", rng.choice([32, 36, 38, 40])),
        number("photos", rng.randint(1_130, 1_890), "How many photographs were taken?"),
    ]


def _findings(rng: Random) -> list[Fact]:
    gullies = rng.randrange(112, 128, 2)
    piers = rng.sample([3, 4, 9, 10, 11], 3)
    return [
        number("wind", rng.choice([85, 90, 95, 105])),
        number("hollow", rng.randint(13, 29)),
        number("joint_pier", piers[0]),
        number("tooth", rng.randrange(110, 190, 10)),
        number("flange_loss", rng.choice([1.4, 1.7, 1.9, 2.1])),
        number("bolt_span", rng.choice([4, 6, 10, 12])),
        number(
            "bolts",
            rng.randint(11, 19),
            "How many bolts are missing from the lower cover plate?",
        ),
        number("paint", rng.randrange(170, 230, 5)),
        number("paint_area", rng.randrange(2_150, 2_950, 50)),
        Fact(
            "stay", rng.choice(["S4", "S7", "N4", "N9"]), "Which stay has lost some of its force?"
        ),
        number("stay_loss", rng.choice([6, 7, 8, 9])),
        Fact(
            "bearing",
            f"B{rng.choice([*range(17, 25), *range(33, 49)])}",
            "Which bearing has seized?",
        ),
        number("jack", rng.choice([150, 200, 250])),
        number(
            "crack",
            rng.choice([0.4, 0.6, 0.7]),
            "How wide is the widest crack?",
        ),
        number("crack_pier", piers[1]),
        number("scour_pier", rng.choice([5, 6])),
        number("scour", rng.choice([1.6, 1.8, 2.2, 2.4]), "How deep is the scour hole?"),
        number("gullies", gullies),
        number("blocked", rng.randint(19, 31), "How many gullies are blocked?"),
        Fact(
            "falcon_pier",
            str(piers[2]),
            "On which pier do the peregrine falcons nest?",
            (rf"\bPier {piers[2]}\b", rf"^\D*\b{piers[2]}\b"),
        ),
        number("stone", rng.choice([200, 250, 300])),
        number("index", rng.choice([71, 72, 73])),
        number("index_before", 78),
    ]


def _money(rng: Random, repairs: tuple[Repair, ...]) -> list[Fact]:
    total = sum(repair.cost for repair in repairs)
    return [
        number("total_cost", total, "What is the total estimated cost of the repairs?"),
        Fact("next_inspection", f"{rng.choice(MONTHS.split()[3:6])} 2030"),
    ]


def _draw_repairs(rng: Random) -> tuple[Repair, ...]:
    def cost(low: int, high: int) -> int:
        return rng.randrange(low, high, 500)

    return (
        Repair("Fill scour hole, renew apron", "8", "urgent", cost(268_000, 312_000)),
        Repair("Jack and replace seized bearing", "7", "urgent", cost(61_000, 79_000)),
        Repair("Replace bolts of batch K4", "5", "urgent", cost(42_000, 58_000)),
        Repair("Re-stress one stay, renew dampers", "6", "one year", cost(52_000, 66_000)),
        Repair("Clear gullies and drip trays", "9", "one year", cost(8_000, 11_000)),
        Repair("Inject and coat cracked pier", "8", "two years", cost(34_000, 47_000)),
        Repair("Deck patching and surfacing", "4", "two years", cost(71_000, 93_000)),
        Repair("Paint seaward girder faces", "5", "two years", cost(342_000, 398_000)),
    )


def _draw_ratings(facts: dict[str, Fact]) -> tuple[tuple[str, int, str, str, str], ...]:
    def at(key: str) -> str:
        return facts[key].value

    return (
        ("Deck slabs", 168, "2.0", "2.5", f"{at('hollow')} hollow places"),
        ("Expansion joints", 15, "4.0", "2.0", "most renewed in 2021"),
        ("Plate girders", 26, "2.0", "2.0", "slight corrosion"),
        ("Bolted splices", 52, "2.0", "3.5", "batch K4 suspect"),
        ("Stay cables", int(at("stays")), "2.0", "2.5", f"{at('stay')} to be re-stressed"),
        ("Bearings", 52, "2.5", "3.5", f"{at('bearing')} seized"),
        ("Piers", 13, "2.0", "2.5", "one crack to inject"),
        ("Foundations", 13, "2.5", "3.5", f"scour at Pier {at('scour_pier')}"),
        ("Parapet lengths", 140, "3.0", "2.0", "rails replaced in 2022"),
        ("Drainage", int(at("gullies")), "3.0", "3.5", f"{at('blocked')} gullies blocked"),
    )
