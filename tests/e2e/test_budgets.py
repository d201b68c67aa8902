"""Windows, RAM and device memory: refused before any compute, or without a trace in the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import WINDOW, Kvcli, Ran, prose, stored_ids

from engine.config import EngineConfig
from engine.engine import Engine
from kvcli import engine_setup, known_disks
from kvcli.disk_probe import DiskProbe, ReadPoint

SHORT = ("--max-tokens", 12)


def test_more_than_the_window_is_refused_before_any_compute(
    kvcli: Kvcli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both numbers, the largest files first, and no session file."""
    for name, lines in (("small.txt", 5), ("large.txt", 200), ("middle.txt", 50)):
        Path(name).write_text(prose(lines))
    monkeypatch.setattr("engine.engine.Engine.compute", lambda *_, **__: pytest.fail("computed"))
    names = ["small.txt", "large.txt", "middle.txt"]
    ran = kvcli("ingest", *names, "-o", "s.kv", "--attention", "exact")
    assert ran.code == 4
    assert f"more than the window of {WINDOW:,}" in ran.error[0]
    assert ran.error[0].index("large.txt ") < ran.error[0].index("middle.txt ")
    assert not list(tmp_path.glob("*.kv")) and not list(tmp_path.glob(".*.kv*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--window", 1], "more than the window of 1 "),
        (["--max-tokens", 2000], "Ask for a shorter answer with --max-tokens"),
    ],
)
def test_a_window_that_is_too_small_for_the_answer_says_so(
    kvcli: Kvcli, notes: Path, arguments: list[object], told: str
) -> None:
    ran = kvcli("ask", "--doc", notes, "Which pier?", "--attention", "exact", *arguments)
    assert ran.code == 4
    assert told in " ".join(ran.error)


def test_a_question_longer_than_the_window_is_refused(kvcli: Kvcli, notes: Path) -> None:
    question = "why " * 2000
    first = kvcli("ask", "--doc", notes, question)
    kvcli("ingest", notes, "-o", "s.kv")
    before = Path("s.kv").read_bytes()
    later = kvcli("resume", "s.kv", question)
    assert (first.code, later.code) == (4, 4)
    assert f"more than the window of {WINDOW:,}" in later.error[0]
    assert Path("s.kv").read_bytes() == before


def least_ram(refused: Ran) -> int:
    """The bytes that a refusal says are needed."""
    assert refused.code == 4
    message = refused.json["error"]["message"]
    return int(message.split("below the ")[1].split(" bytes")[0].replace(",", ""))


@pytest.mark.parametrize("page_tokens", [16, 64])
def test_the_answer_does_not_depend_on_the_budgets(
    kvcli: Kvcli, tmp_path: Path, page_tokens: int
) -> None:
    """All resident; a device tier of one page; the least RAM that is not refused, with and without
    a session: the same answer and the same sources."""
    Path("long.txt").write_text(prose(50))
    given = ["ask", *SHORT, "--doc", "long.txt", "--page-tokens", page_tokens, "--json", "Which?"]
    least = least_ram(kvcli(*given, "--ram", "1KiB"))
    page_bytes = 3 * 2 * 2 * page_tokens * 16 * 4
    runs = [
        kvcli(*given, "--ram", "1GiB"),
        kvcli(*given, "--ram", "1GiB", "--vram", page_bytes),
        kvcli(*given, "--ram", least),
        kvcli(*given, "--ram", least, "--session", "s.kv"),
    ]
    assert [ran.code for ran in runs] == [0, 0, 0, 0], [ran.out for ran in runs]
    results = [ran.json for ran in runs]
    assert len({result["answer"] for result in results}) == 1
    assert all(result["citations"] == results[0]["citations"] for result in results)
    assert results[2]["io"]["read_bytes"] > 0


@pytest.mark.parametrize("lines", [13, 42])
def test_little_ram_costs_the_neutral_question_before_the_answer(kvcli: Kvcli, lines: int) -> None:
    """The documents almost fill a segment, so that a fork of small pages finds no room."""
    Path("q.txt").write_text(prose(lines))
    given = ["ask", *SHORT, "--doc", "q.txt", "--page-tokens", 16, "--json", "Which?"]
    least = least_ram(kvcli(*given, "--ram", "1KiB"))
    assert kvcli(*given, "--ram", least).json["answer"] == kvcli(*given).json["answer"]


@pytest.mark.parametrize("page_tokens", [16, 64, 512])
def test_the_least_ram_that_a_refusal_names_is_enough(
    kvcli: Kvcli, notes: Path, page_tokens: int
) -> None:
    given = ["ingest", notes, "-o", "s.kv", "--page-tokens", page_tokens, "--json"]
    least = least_ram(kvcli(*given, "--ram", "1KiB"))
    assert kvcli(*given, "--ram", least).code == 0


def test_less_ram_than_a_segment_is_refused_and_leaves_nothing(
    kvcli: Kvcli, notes: Path, tmp_path: Path
) -> None:
    ran = kvcli("ingest", notes, "-o", "s.kv", "--ram", "64KiB")
    assert ran.code == 4
    assert "the RAM budget of 65,536 bytes is below the " in ran.error[0]
    assert len(ran.error) == 2
    assert not list(tmp_path.glob("*.kv*")) and not list(tmp_path.glob(".*.kv*"))


def test_the_metrics_add_up(kvcli: Kvcli, notes: Path) -> None:
    """Pages over tiers sum to the total in every sample; the phases sum to the wall clock."""
    given = ["--doc", notes, "--session", "s.kv", "--metrics", "m.jsonl", "--json", "Which pier?"]
    usage = kvcli("ask", *SHORT, *given).json["usage"]
    samples = [json.loads(line) for line in Path("m.jsonl").read_text().splitlines()]
    assert samples
    for sample in samples:
        assert sum(tier["pages"] for tier in sample["tiers"]) == sample["total_pages"]
        assert sum(sample["seconds"].values()) == pytest.approx(
            sample["wall_s"], rel=0.02, abs=1e-3
        )
    ids = len(stored_ids(Path("s.kv")))
    assert samples[-1]["decoded_tokens"] == ids - usage["prompt_tokens"]
    assert samples[-1]["total_pages"] == -(-ids // 64)


def test_the_seconds_of_the_result_are_the_run(kvcli: Kvcli, notes: Path) -> None:
    result = kvcli("ask", *SHORT, "--doc", notes, "--metrics", "m.jsonl", "--json", "Which?").json
    last = json.loads(Path("m.jsonl").read_text().splitlines()[-1])
    assert sum(last["seconds"].values()) == pytest.approx(last["wall_s"], abs=0.01)
    # Taken a moment before: on a busy machine that may be any time, but never more of anything.
    spent = {name: result["io"][f"{name}_s"] for name in ("compute", "idle")}
    spent |= result["io"]["stalls"]
    assert set(spent) == set(last["seconds"]) and spent["compute"] > 0
    assert all(0 <= spent[name] <= last["seconds"][name] + 0.01 for name in spent)
    assert sum(result["io"]["stalls"].values()) == pytest.approx(result["io"]["stall_s"], abs=0.01)


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig]:
    """The settings of every engine that a command opens."""
    seen: list[EngineConfig] = []

    class Watched(Engine):
        def __init__(self, model: object, config: EngineConfig, *rest: object, **more: object):
            seen.append(config)
            super().__init__(model, config, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_setup, "Engine", Watched)
    return seen


def test_a_run_that_streams_measures_its_disk_once_and_reads_as_it_found_best(
    kvcli: Kvcli, tmp_path: Path, configs: list[EngineConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spill file, then a session: neither the answer nor what is kept of the disk differs."""
    Path("long.txt").write_text(prose(45))
    asked = ("ask", "--doc", "long.txt", "--ram", "3MiB", *SHORT, "Why?", "--json")
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(known_disks, "probe_disk", lambda _: pytest.fail("a small run was delayed"))
    plain = kvcli(*asked).json["answer"]
    probe = DiskProbe((ReadPoint(8, 1 << 16, 1e9),), 1e9, is_direct=True)
    folders: list[Path] = []
    monkeypatch.setattr(known_disks, "LEAST_STREAMED", 0)
    monkeypatch.setattr(known_disks, "probe_disk", lambda folder: folders.append(folder) or probe)
    found = kvcli(*asked)
    assert "measured the disk: 8 threads x 64 KiB: 1.0 GB/s" in found.err
    kept = kvcli(*asked, "--session", "s.kv")
    assert "measured" not in kept.err and folders == [tmp_path / "cache" / "spill"]
    assert found.json["answer"] == kept.json["answer"] == plain
    first, *later = ((c.io_threads, c.extent_bytes, c.stream_depth) for c in configs)
    assert first == (2, 1 << 20, 3)
    assert later == [(9, 1 << 16, 6)] * 2
