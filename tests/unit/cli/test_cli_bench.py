"""`kvcli bench evict`: policies compared on what --metrics has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.policies import POLICIES
from engine.telemetry import Phase
from engine.types import Tier

STORED = {"kind": "stored", "pages": [[0, 8]]}


def read(*pages: int) -> dict[str, Any]:
    return {"kind": "read", "pages": [[page, 1] for page in pages]}


def sample(at: float, accesses: list[Any] | None, **changes: Any) -> dict[str, Any]:
    """A sample of a run whose pages are 1,000 bytes, two of which lie in the device tier."""
    tiers = [("device", 4000, 2000, 2), ("host", 9000, 5000, 3), ("disk", None, 8200, 3)]
    given = {} if accesses is None else {"accesses": accesses}
    return {
        "wall_s": at, "tokens_done": 0, "decoded_tokens": 0, "read_bytes": 0, "written_bytes": 0,
        "seconds": {phase.value: 0.0 for phase in Phase}, "hits": {tier.value: 0 for tier in Tier},
        "tiers": [
            {"name": name, "capacity_bytes": room, "used_bytes": used, "pages": pages}
            for name, room, used, pages in tiers
        ],
    } | given | changes  # fmt: skip


def write(path: Path, *samples: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))
    return path


@pytest.fixture
def rounds(tmp_path: Path) -> Path:
    """Eight pages, read one by one, again and again: the worst that can happen to LRU."""
    steps = [read(page) for page in range(8)] * 5
    return write(tmp_path / "rounds.jsonl", sample(0.0, [STORED]), sample(1.0, steps))


def test_every_policy_and_the_optimum_at_three_capacities(kvcli, rounds: Path) -> None:
    ran = kvcli("bench", "evict", rounds, "--json")
    assert ran.code == 0
    (trace,) = json.loads(ran.out)["traces"]
    assert (trace["path"], trace["pages_read"], trace["reads"]) == (str(rounds), 8, 40)
    assert [each["pages"] for each in trace["capacities"]] == [1, 2, 4]
    for each in trace["capacities"]:
        best, *others = each["policies"]
        assert best["policy"] == "belady" and best["regret"] == 1.0
        assert {other["policy"] for other in others} == set(POLICIES)
        assert [o["misses"] for o in others] == sorted(o["misses"] for o in others)
    four = {each["policy"]: each for each in trace["capacities"][-1]["policies"]}
    assert four["lru"] == {
        "policy": "lru", "hit_rate": 0.0, "hits": 0, "misses": 40, "bytes_moved": 40_000,
        "evictions": 36, "regret": round(40 / four["belady"]["misses"], 4),
    }  # fmt: skip


def test_a_table_for_each_run(kvcli, rounds: Path) -> None:
    ran = kvcli("bench", "evict", rounds, rounds, "--pages", "4")
    assert ran.code == 0
    assert ran.out.count("rounds.jsonl: 8 pages read 40 times") == 2
    rows = [line.split() for line in ran.out.splitlines()]
    first = next(row for row in rows if "belady" in row)
    assert first[:3] == ["4", "pages", "belady"] and first[-1] == "1.00"
    lru = next(row for row in rows if row[:1] == ["lru"])
    assert lru[:6] == ["lru", "0.0%", "40", "40", "kB", "36"]


def test_capacities_are_pages_or_shares_of_the_pages_read(kvcli, rounds: Path) -> None:
    asked = ("--pages", "3", "--share", "0.25", "--share", "0.001", "--pages", "2")
    ran = kvcli("bench", "evict", rounds, *asked, "--json")
    capacities = json.loads(ran.out)["traces"][0]["capacities"]
    assert [each["pages"] for each in capacities] == [1, 2, 3]


def test_of_several_runs_the_last_one_counts(kvcli, tmp_path: Path) -> None:
    path = write(
        tmp_path / "run.jsonl",
        sample(0.0, [STORED]), sample(9.0, [read(1)] * 7), sample(1.0, [STORED, read(1, 2)]),
    )  # fmt: skip
    assert json.loads(kvcli("bench", "evict", path, "--json").out)["traces"][0]["reads"] == 2


def test_an_infinite_regret_is_null(kvcli, tmp_path: Path) -> None:
    new = [{"kind": "new", "pages": [[page, 1]]} for page in (0, 1)]
    path = write(tmp_path / "run.jsonl", sample(0.0, [*new, read(0)]))
    trace = json.loads(kvcli("bench", "evict", path, "--pages", "1", "--json").out)["traces"][0]
    assert {p["policy"]: p["regret"] for p in trace["capacities"][0]["policies"]}["lru"] is None
    assert "∞" in kvcli("bench", "evict", path, "--pages", "1").out


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "has no sample of a run"),
        ([{"wall_s": 1}, {"wall_s": 2}], "run.jsonl:1 is no sample"),
        ([sample(0.0, None)], "older version"),
        ([sample(0.0, [STORED])], "no page was ever read"),
        ([sample(0.0, [{"kind": "eaten", "pages": []}])], "page accesses that are none"),
        ([sample(0.0, [5])], "page accesses that are none"),
        ([sample(0.0, 5)], "page accesses that are none"),
        ([sample(0.0, [read(0)], tiers=[])], "how large a page is"),
    ],
)
def test_a_file_without_accesses_is_one_line(
    kvcli, tmp_path: Path, lines: list[Any], reason: str
) -> None:
    ran = kvcli("bench", "evict", write(tmp_path / "run.jsonl", *lines))
    assert (ran.code, ran.out) == (3, "")
    message, advice = ran.err.splitlines()
    assert reason in message and "--metrics" in advice


def test_a_missing_file_is_one_line_and_nothing_is_printed_of_others(kvcli, rounds: Path) -> None:
    ran = kvcli("bench", "evict", rounds, rounds.with_name("none.jsonl"))
    assert (ran.code, ran.out) == (3, "")
    assert "No such file" in ran.err and "--metrics" in ran.err


@pytest.mark.parametrize(
    "arguments", [["--pages", "0"], ["--share", "0"], ["--share", "1.5"], ["--share", "nan"]]
)
def test_a_tier_of_nothing_is_refused(kvcli, rounds: Path, arguments: list[str]) -> None:
    ran = kvcli("bench", "evict", rounds, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 2


@pytest.mark.parametrize("arguments", [[], ["evict"], ["prefetch"]])
def test_half_a_command_says_where_to_read_on(kvcli, arguments: list[str]) -> None:
    ran = kvcli("bench", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "--help" in ran.err


def test_the_config_file_counts_here_too(kvcli, rounds: Path, private_home: Path) -> None:
    path = private_home / ".config" / "kvcli" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("json = true\n")
    assert json.loads(kvcli("bench", "evict", rounds).out)["traces"]
