"""Facts hidden in real text, and the questions that look for them.

Owns the invented names and sentences, where they go, and when an answer or a citation is right.
Knows no model, and of a tokenizer only how many tokens a line has.

Kinds of question. `single`: one fact, beside two of the same form about other names. `multi_key`:
one of four facts of the same form whose names begin alike. `multi_value`: four facts about one
name, all asked for. `two_hop`: one fact leads to another, beside such a pair about another name.
`absent`: a form that occurs, about a name that does not; nothing but "not found" is right.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

APART = 0.05
"""Least distance between the sentences of one question, as a share of the text."""
HEADS = (
    "Vorn", "Bren", "Ost", "Kal", "Dray", "Fenn", "Grun", "Hesk", "Irv", "Jol", "Lund", "Morv",
    "Nath", "Pell", "Quar", "Rosk", "Sild", "Tarn", "Ulm", "Vesk", "Wend", "Yar", "Zeld", "Birk",
)  # fmt: skip
TAILS = (
    "holt", "wick", "moor", "sted", "garth", "lach", "minster", "vale", "hagen", "brook", "crest",
    "dell", "fjord", "gate", "mere", "nook", "oake", "pool", "ridge", "shaw", "worth", "yard",
)  # fmt: skip
GIVEN = ("Marta", "Anton", "Greta", "Oskar", "Inga", "Pavel", "Runa", "Tomas")
MONTHS = ("January", "March", "April", "June", "July", "August", "October", "November")

Form = tuple[str, ...]
"""The kind of its value, the question, and the sentence, or the two of a chain."""

FORMS: tuple[Form, ...] = (
    ("number", "What is the maintenance code of the {name} pump?",
     "The maintenance code of the {name} pump is {value}."),
    ("person", "Who chairs the {name} committee?",
     "{value} was chosen to chair the {name} committee."),
    ("name", "In which town are the letters of the {name} society stored?",
     "Letters of the {name} society are stored in the town of {value}."),
    ("date", "When did the {name} expedition leave?", "The {name} expedition set out on {value}."),
    ("number", "Which combination opens the vault of the {name} bank?",
     "The vault of the {name} bank opens with the combination {value}."),
    ("person", "Who designed the {name} bridge?", "The bridge at {name} is the work of {value}."),
    ("date", "On which day do the people of {name} hold their lantern feast?",
     "The people of {name} hold their lantern feast on {value}."),
)  # fmt: skip
LISTS: tuple[Form, ...] = (
    ("number", "What are the four call signs of the {name} station?",
     "One of the four call signs of the {name} station is {value}."),
    ("name", "Which four towns are on the {name} railway?",
     "One of the four towns on the {name} railway is {value}."),
)  # fmt: skip
CHAINS: tuple[Form, ...] = (
    ("name", "In which town does the keeper of the {name} manuscript live?",
     "The {name} manuscript is kept by {middle}.", "{middle} lives in the town of {value}."),
    ("number", "What is the number of the desk of the head of the {name} school?",
     "The head of the {name} school is {middle}.", "The desk of {middle} is number {value}."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fact stands."""

    at: int
    """Line or, in a PDF, page, from 1, as a citation counts."""
    token: int
    """Tokens before it, counted line by line."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked and what would be right."""

    kind: str
    text: str
    accept: tuple[str, ...]
    """Patterns that a right answer matches, every one; none where nothing is right."""
    traps: tuple[str, ...] = ()
    """Patterns of the values of other facts of the same form."""
    facts: tuple[str, ...] = ()
    """The sentences that answer it."""
    others: tuple[str, ...] = ()
    """Sentences of the same form that do not."""
    places: tuple[Place, ...] = ()
    """Of the facts, in their order."""

    def is_answered(self, answer: str) -> bool:
        """Whether the answer has everything that was asked for."""
        found = [re.search(pattern, answer, re.IGNORECASE) for pattern in self.accept]
        return bool(found) and all(found)

    def is_trapped(self, answer: str) -> bool:
        """Whether the answer has the value of another fact of the same form."""
        return any(re.search(pattern, answer, re.IGNORECASE) for pattern in self.traps)

    def places_in(self, cited: Iterable[tuple[int, int]]) -> set[Place]:
        """The places within any of the cited ranges of lines or pages, both ends inclusive."""
        ranges = list(cited)
        return {p for p in self.places if any(a <= p.at <= b for a, b in ranges)}


@dataclass(frozen=True, slots=True)
class Haystack:
    """A text with facts in it: a citation's line N is `lines[N - 1]`, without its line end."""

    lines: tuple[str, ...]
    questions: tuple[Question, ...]
    num_tokens: int


def hide(
    lines: Iterable[str], seed: int, *, tokens: int, count_tokens: Callable[[str], int],
    singles: int = 10, groups: int = 5, mark: str = "",
) -> Haystack:  # fmt: skip
    """Take as much of a text as is needed and hide facts in it, as paragraphs of their own.

    The facts of single questions stand at depths from 0 to 1 in even steps, the others anywhere.

    Args:
        lines: The text, without line ends; read no further than needed.
        seed: The same seed gives the same facts and places.
        tokens: Most tokens of the result, which falls short of them by a few lines.
        count_tokens: Tokens of a line, given with a line end in front, as indented lines need it.
        singles: Single questions, and as many absent ones.
        groups: Questions of each other kind.
        mark: Stands before each fact; what begins a comment, in code.

    Raises:
        ValueError: The text is too short or has too few paragraphs.
    """
    rng, taken, before = random.Random(seed), list[str](), [0]
    for line in lines:
        taken.append(line)
        before.append(before[-1] + count_tokens("\n" + line))
        if before[-1] >= tokens:
            break
    questions = invent(rng, "\n".join(taken), singles, groups)
    facts = [f"\n{mark}{fact}" for q in questions for fact in (*q.facts, *q.others)]
    room = tokens - sum(count_tokens(fact) + 2 * count_tokens("\n") for fact in facts)
    if before[-1] < tokens or room <= 0:
        raise ValueError(f"{before[-1]:,} tokens of text and {tokens - room:,} of facts do not do")
    kept = bisect_right(before, room) - 1
    pairs = enumerate(pairwise(taken[:kept]), start=1)
    inner = [at for at, (a, b) in pairs if not a.strip() or (a[-1] in ".!?" and b[:1].isupper())]
    sites = choose_sites(questions, [0, *inner], before[: kept + 1], rng)
    whole, rows = _assemble(taken[:kept], {at: mark + fact for at, fact in sites.items()})
    starts = [0, *accumulate(count_tokens("\n" + line) for line in whole)]
    place = {fact: Place(row, starts[row - 1]) for fact, row in rows.items()}
    placed = [replace(q, places=tuple(place[mark + fact] for fact in q.facts)) for q in questions]
    return Haystack(tuple(whole), tuple(placed), starts[-1])


def invent(rng: random.Random, text: str, singles: int, groups: int) -> list[Question]:
    """Invent questions and the sentences that answer them, with names that are not in the text."""
    return _Inventor(rng, text).questions(singles, groups)


def choose_sites(
    questions: list[Question], breaks: list[int], before: list[int], rng: random.Random
) -> dict[int, str]:
    """Give every sentence one of the breaks, that is, an index into `before`; each only once.

    Args:
        questions: Their sentences are placed.
        breaks: Where a sentence may stand, ascending; those that are taken are removed.
        before: How much of the text stands before each index; the last is all of it.
        rng: Chooses where depths are not even.
    """
    sites = dict[int, str]()
    steps = max(1, sum(question.kind == "single" for question in questions) - 1)
    for number, question in enumerate(questions):
        depths: list[float] = []
        for sentence in (*question.facts, *question.others):
            is_even = question.kind == "single" and not depths
            depth = number / steps if is_even else rng.random()
            while any(abs(depth - other) < APART for other in depths):
                depth = rng.random()
            depths.append(depth)
            if not breaks:
                raise ValueError("the text has too few paragraphs for the facts")
            at = bisect_left(breaks, bisect_left(before, depth * before[-1]))
            sites[breaks.pop(min(at, len(breaks) - 1))] = sentence
    return sites


def _assemble(lines: list[str], sites: dict[int, str]) -> tuple[list[str], dict[str, int]]:
    """Put the sentences in, blank lines around them; with the line numbers where they stand."""
    whole, rows = list[str](), dict[str, int]()
    for at, line in enumerate(lines):
        if at in sites:
            whole += [""] if whole and whole[-1].strip() else []
            whole.append(sites[at])
            rows[sites[at]] = len(whole)
            whole += [""] if line.strip() else []
        whole.append(line)
    return whole, rows


class _Inventor:
    """Invents names, values and sentences about them; nothing twice, no name of the text."""

    def __init__(self, rng: random.Random, text: str) -> None:
        seen = text.lower()
        names = rng.sample([head + tail for head in HEADS for tail in TAILS], 500)
        self._names = [name for name in names if name.lower() not in seen]
        self._numbers = [n for n in rng.sample(range(10_000, 100_000), 500) if str(n) not in seen]
        self._days = rng.sample([f"{day} {m}" for m in MONTHS for day in range(1, 31)], 240)
        self._patterns: dict[Form, list[str]] = defaultdict(list)
        self._rng = rng

    def _take(self, count: int, head: str = "") -> list[str]:
        """Names that begin so."""
        taken = [name for name in self._names if name.startswith(head)][:count]
        self._names = [name for name in self._names if name not in taken]
        return taken

    def _value(self, kind: str) -> tuple[str, str]:
        """A value as written, and the pattern of an answer that has it."""
        if kind == "number":
            number = str(self._numbers.pop())
            return number, rf"\b{number[:2]},?{number[2:]}\b"
        if kind == "date":
            day, month = (date := self._days.pop()).split()
            return date, rf"\b{day}([a-z]{{2}})?( of)? {month}|{month} {day}([a-z]{{2}})?\b"
        name = self._take(1)[0]
        return f"{self._rng.choice(GIVEN)} {name}" if kind == "person" else name, rf"\b{name}\b"

    def _ask(self, kind: str, form: Form, names: list[str], asked: int = 1) -> Question:
        """Facts about each name; those about the first `asked` names answer."""
        value_kind, text, *sentences = form
        facts, patterns = list[str](), list[str]()
        for name in names:
            middle = self._value("person")[0] if len(sentences) > 1 else ""
            value, pattern = self._value(value_kind)
            facts += [s.format(name=name, middle=middle, value=value) for s in sentences]
            patterns.append(pattern)
        self._patterns[form] += patterns
        text, accept, mine = text.format(name=names[0]), patterns[:asked], asked * len(sentences)
        return Question(kind, text, tuple(accept), (), tuple(facts[:mine]), tuple(facts[mine:]))

    def questions(self, singles: int, groups: int) -> list[Question]:
        """Every question, the single ones first."""
        forms = [FORMS[at % len(FORMS)] for at in range(singles)]
        found = [(form, self._ask("single", form, self._take(3))) for form in forms]
        for at in range(groups):
            form, kin = FORMS[-1 - at % len(FORMS)], self._take(4, self._rng.choice(HEADS))
            found.append((form, self._ask("multi_key", form, kin)))
            form, name = LISTS[at % len(LISTS)], self._take(1)
            found.append((form, self._ask("multi_value", form, name * 4, asked=4)))
            form = CHAINS[at % len(CHAINS)]
            found.append((form, self._ask("two_hop", form, self._take(2))))
        absent = [form[1].format(name=self._take(1)[0]) for form in forms]
        found += [(f, Question("absent", q, ())) for f, q in zip(forms, absent, strict=True)]
        traps = [[p for p in self._patterns[form] if p not in q.accept] for form, q in found]
        return [replace(q, traps=tuple(t)) for (_, q), t in zip(found, traps, strict=True)]
