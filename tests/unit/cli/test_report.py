"""`kvcli report`: what a run's metrics come to, and the page that is drawn of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.errors import NothingReadable
from engine.telemetry import Link, Phase
from engine.types import Tier
from kvcli.report_page import MARK
from kvcli.run_log import MOST_POINTS, read_log


def sample(at: float, tokens: int = 0, **changes: Any) -> dict[str, Any]:
    """A sample of a run that computes all the time and reads 5 MB a second."""
    tiers = [("device", 100, 2), ("host", 200, 3), ("disk", None, 7)]
    return {
        "wall_s": at, "task": "reading", "tokens_done": tokens, "tokens_total": 10**6,
        "decoded_tokens": 0, "total_pages": 12, "read_bytes": int(5e6 * at), "written_bytes": 0,
        "seconds": {phase.value: 0.0 for phase in Phase} | {"compute": at},
        "links": {
            "host_to_device": {"moved_bytes": 0, "moves": 0, "busy_s": 0.0},
            "disk_to_host": {"moved_bytes": int(5e6 * at), "moves": 7, "busy_s": at / 4},
            "host_to_disk": {"moved_bytes": 0, "moves": 0, "busy_s": 0.0},
        },
        "reuse": [60, 30, 0, 10],
        "hits": {"device": 0, "host": 0, "disk": 0},
        "tiers": [
            {"name": name, "capacity_bytes": room, "used_bytes": 50, "pages": pages, "evictions": 0,
             "hot_pages": 1, "hot_bytes": 10}
            for name, room, pages in tiers
        ],
    } | changes  # fmt: skip


def write(path: Path, samples: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))
    return path


def steady(seconds: int) -> list[dict[str, Any]]:
    """Steps of 1,024 tokens every four seconds, sampled four times a second."""
    return [sample(tick / 4, int(tick / 16) * 1024) for tick in range(4 * seconds)]


def test_tokens_that_come_a_thousand_at_once_make_a_steady_speed(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "run.jsonl", steady(100)))
    whole_steps = [rate for at, rate in zip(log.times, log.tokens_per_s, strict=True) if at < 95]
    assert whole_steps == pytest.approx([256.0] * len(whole_steps), rel=1e-6)


def test_another_task_counts_its_tokens_anew(tmp_path: Path) -> None:
    """An answer's few thousand after a document's million are no speed, nor the way back."""
    samples = [sample(at, 10**6 if at != 2.0 else 2000) for at in (0.0, 1.0, 2.0, 3.0)]
    samples[2]["task"] = "answer"
    log = read_log(write(tmp_path / "run.jsonl", samples))
    assert log.tokens_per_s == [0.0, 0.0, 0.0]


def test_time_pages_and_bytes_are_those_of_each_interval(tmp_path: Path) -> None:
    first = sample(0.0)
    second = sample(
        2.0, seconds=first["seconds"] | {"compute": 1.0, "read": 0.5, "idle": 0.5},
        hits={"device": 3, "host": 0, "disk": 1},
    )  # fmt: skip
    third = sample(3.0, seconds=second["seconds"] | {"idle": 1.5}, hits=second["hits"])
    log = read_log(write(tmp_path / "run.jsonl", [first, second, third]))
    assert log.times == [2.0, 3.0]
    assert [log.shares[phase] for phase in (Phase.COMPUTE, Phase.READ, Phase.IDLE)] == [
        [0.5, 0.0], [0.25, 0.0], [0.25, 1.0],
    ]  # fmt: skip
    assert log.link_rates[Link.DISK_TO_HOST] == [5e6, 5e6]
    assert log.busy_shares[Link.DISK_TO_HOST] == [0.25, 0.25]
    assert log.hot_shares[Tier.DEVICE] == [0.5, 0.5] and not log.is_old
    assert [log.pages[tier] for tier in Tier] == [[2, 2], [3, 3], [7, 7]]
    assert log.hit_shares[Tier.DISK] == [0.25, 0.25], "nothing was read: as before"


def older(line: dict[str, Any]) -> dict[str, Any]:
    """The sample as kvcli wrote it before it told stalls apart."""
    kept = {name: value for name, value in line.items() if name not in ("links", "reuse")}
    kept["seconds"] = {n: line["seconds"][n] for n in ("idle", "compute", "read", "write")}
    kept["tiers"] = [
        {name: value for name, value in tier.items() if not name.startswith("hot_")}
        for tier in line["tiers"]
    ]
    return kept


def test_a_file_of_an_older_version_is_read_for_what_it_has(kvcli, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [older(line) for line in steady(20)])
    log = read_log(path)
    assert log.is_old and log.link_rates[Link.DISK_TO_HOST][0] == pytest.approx(5e6)
    assert log.shares[Phase.COMPUTE][0] == pytest.approx(1.0)
    assert kvcli("report", path).code == 0
    assert "An older kvcli has written this file" in (tmp_path / "run.html").read_text()


def test_a_peak_is_that_of_a_second_and_survives_thinning(tmp_path: Path) -> None:
    """A burst of 9 MB within half a second, in a run of an hour."""
    samples = [sample(tick / 2) for tick in range(7200)]
    for line in samples:
        late = line["wall_s"] > 1000
        line["links"]["disk_to_host"]["moved_bytes"] = 9_000_000 if late else 0
    log = read_log(write(tmp_path / "run.jsonl", samples))
    assert log.peaks[Link.DISK_TO_HOST] == 9e6


def test_a_long_run_is_thinned_evenly_and_keeps_its_ends(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "run.jsonl", steady(4000)))
    assert MOST_POINTS * 0.9 < len(log.samples) <= MOST_POINTS + 1
    assert (log.samples[0]["wall_s"], log.last["wall_s"]) == (0.0, 3999.75)


def test_of_several_runs_the_last_one_is_drawn(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "run.jsonl", [*steady(50), *steady(20)]))
    assert log.num_runs == 2
    assert log.last["wall_s"] == 19.75


def test_a_line_cut_off_at_the_end_is_left_out(tmp_path: Path) -> None:
    """A run that was killed."""
    path = write(tmp_path / "run.jsonl", steady(10))
    with path.open("a") as file:
        file.write('{"wall_s": 10.0, "ta')
    assert read_log(path).last["wall_s"] == 9.75


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "fewer than two samples"),
        (b'{"wall_s": 1}\n{"wall_s": 2}\n', "run.jsonl:1 is no sample"),
        (b"\xff\xfe", "it is no text"),
        (json.dumps(sample(0.0)).encode(), "fewer than two samples"),
        (b"not json\n" + json.dumps(sample(0.0)).encode(), "run.jsonl:1 is no sample"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(NothingReadable, match=re.escape(reason)):
        read_log(path)


def test_a_missing_file_is_one_line(kvcli, tmp_path: Path) -> None:
    ran = kvcli("report", tmp_path / "none.jsonl")
    assert (ran.code, ran.out) == (3, "")
    assert "No such file" in ran.err and "--metrics" in ran.err


def test_the_page_has_everything_in_it(kvcli, tmp_path: Path) -> None:
    """It is opened from a disk, often on another machine: nothing may be fetched."""
    path = write(tmp_path / "a&b.jsonl", steady(60))
    ran = kvcli("report", path)
    assert ran.code == 0 and ran.out.strip() == str(tmp_path / "a&b.html")
    page = (tmp_path / "a&b.html").read_text()
    assert page.startswith(MARK)
    assert "<h1>a&amp;b.jsonl</h1>" in page and "14,336 tokens" in page
    for part in ("stall: decode", "host → device", "20 MB/s", "8-15", "stalled by", "busy"):
        assert part in page, part
    assert not re.search(r"<(script|link|img)[^>]+(src|href)\s*=", page)
    assert kvcli("report", path, "--json").out == json.dumps({"report": ran.out.strip()}) + "\n"


def test_only_a_report_is_ever_replaced(kvcli, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", steady(60))
    (tmp_path / "thesis.html").write_text("<html>years of work</html>")
    ran = kvcli("report", path, "-o", tmp_path / "thesis.html")
    assert ran.code == 2 and "is no report" in ran.err
    assert (tmp_path / "thesis.html").read_text() == "<html>years of work</html>"


def test_a_place_that_cannot_be_written_is_one_line(kvcli, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", steady(60))
    ran = kvcli("report", path, "-o", tmp_path / "none" / "run.html")
    assert ran.code == 1 and "cannot write" in ran.err
