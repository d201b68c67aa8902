"""The whole engine over a disk that lies, fills up or dawdles: never wrong KV, never a hang."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest
from engine_kit import (
    LEAST_HOST,
    PAGE,
    RESIDENT,
    SEGMENT,
    SMALL,
    SMALLEST,
    Budget,
    Heard,
    listen,
    new_file,
    open_engine,
    saved,
    text,
    tiny,
)
from session_faults import Device, flip

from engine.engine import Engine
from engine.errors import PageCorrupt, StorageError
from engine.sequence import Sequence
from engine.session import SessionFile
from engine.tiers import transfer, write_queue
from engine.types import Part

MODEL = "llama"


def alone(*runs: tuple[int, int, int]) -> Heard:
    """What an undisturbed engine says last to runs of (tokens, seed, answer)."""
    with open_engine(tiny(MODEL, "bfloat16")) as engine:
        sequence = engine.new_sequence()
        for count, seed, answer in runs:
            heard = listen(engine, sequence, text(count, seed), answer)
    return heard


def offset_of(file: SessionFile, page: int, part: Part, layer: int) -> int:
    """Where a byte in the middle of a page slice lies in the file."""
    segment, index = divmod(page, SEGMENT // PAGE)
    extent = file._state.segments.extent(segment)
    layout = file._state.segments.layout(segment)
    return extent + layout.page_offset(part, layer, index) + layout.page_bytes(part) // 2


# -- bytes that changed --------------------------------------------------------------------


PAGERS = pytest.mark.parametrize("pager", ["explicit", "unified"])


@PAGERS
@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("layer", [0, 2])
def test_a_corrupt_page_stops_the_step_and_harms_nothing_else(
    layer: int, part: Part, pager: str, tmp_path: Path
) -> None:
    """Once the byte is as it was, the same engine goes on and gives the right bits."""
    path, model = saved(tmp_path / "s.kv", 300), tiny(MODEL, "bfloat16")
    with SessionFile.open(path, writable=False) as file:
        offset = offset_of(file, 9, part, layer)
    flip(path, offset)
    for budget in (SMALLEST, RESIDENT):
        file = SessionFile.open(path, writable=True)
        with open_engine(model, budget, file=file, pager=pager) as engine:
            sequence = engine.resume()
            sequence.token_ids.extend(text(30, 2))
            name = f"page 9, layer {layer}, {part.name.lower()}"
            for _ in range(2):
                with pytest.raises(PageCorrupt, match=name):
                    engine.compute(sequence)
                engine.check_integrity()
                assert sequence.num_tokens == 300
            flip(path, offset)
            heard = listen(engine, sequence, [], 3)
        flip(path, offset)
        assert heard.same_bits(alone((300, 1, 0), (30, 2, 3)))


@PAGERS
def test_after_a_corrupt_page_another_sequence_can_start(pager: str) -> None:
    with open_engine(tiny(MODEL, "bfloat16"), SMALLEST, pager=pager) as engine:
        spoilt = engine.new_sequence()
        listen(engine, spoilt, text(300), 0)
        spill = engine._parts.file
        engine._memory.transfer.writes.drain()
        os.pwrite(spill._file._fd, b"\xff" * 8, offset_of(spill, 3, Part.KEYS, 1))
        spoilt.token_ids.extend(text(3, 2))
        with pytest.raises(PageCorrupt):
            engine.compute(spoilt)
        engine.check_integrity()
        engine.drop(spoilt)
        heard = listen(engine, engine.new_sequence(), text(300, 4), 3)
    assert heard.same_bits(alone((300, 4, 3)))


# -- writes that fail ----------------------------------------------------------------------


def test_a_full_disk_is_told_again_and_again_and_costs_only_what_was_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that the engine takes for saved are not; neither a step nor a commit may go on."""
    model, path = tiny(MODEL, "bfloat16"), tmp_path / "s.kv"
    with open_engine(model, SMALLEST, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(200), 0)
        engine.commit(sequence)
        sequence.token_ids.extend(text(400, 2))
        Device(fail_write=(14, errno.ENOSPC)).install(monkeypatch)
        with pytest.raises(StorageError, match="full"):
            engine.compute(sequence)
            engine.commit(sequence)
        monkeypatch.undo()
        assert sequence.num_tokens > 200, "the test should fail in a later step"
        for again in (lambda: engine.commit(sequence), lambda: engine.compute(sequence)):
            with pytest.raises(StorageError, match="full"):
                again()
            engine.check_integrity()
    with open_engine(model, SMALL, file=SessionFile.open(path, writable=True)) as engine:
        resumed = engine.resume()
        assert resumed.token_ids == text(200) and resumed.num_tokens == 200
        heard = listen(engine, resumed, text(400, 2), 3)
    assert heard.same_bits(alone((200, 1, 0), (400, 2, 3)))


def test_a_commit_that_fails_can_be_repeated_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages were written; only the record of the commit did not fit."""
    model, path = tiny(MODEL, "bfloat16"), tmp_path / "s.kv"
    with open_engine(model, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(100), 0)
        engine.commit(sequence)
        listen(engine, sequence, text(28, 2), 0)
        engine._keeper._save(sequence, 8)
        engine._memory.transfer.writes.drain()
        Device(fail_write=(0, errno.ENOSPC)).install(monkeypatch)
        with pytest.raises(StorageError, match="full"):
            engine.commit(sequence)
        monkeypatch.undo()
        engine.commit(sequence)
    with SessionFile.open(path, writable=False) as file:
        assert file.kv_tokens == 128 and file.token_ids.tolist() == text(100) + text(28, 2)


# -- a disk that dawdles -------------------------------------------------------------------


def dawdle(monkeypatch: pytest.MonkeyPatch, writes: float, reads: float) -> None:
    """Every write takes its time; reads take more or less of theirs, so that they overtake."""
    real_write, real_read = write_queue.write_run, transfer.read_run

    def write_run(*arguments: object) -> int:
        time.sleep(writes)
        return real_write(*arguments)

    def read_run(file: SessionFile, run: object, half: Part, layer: int, *rest: object) -> int:
        time.sleep(reads * ((run.segment + half + layer) % 3))
        return real_read(file, run, half, layer, *rest)

    monkeypatch.setattr(write_queue, "write_run", write_run)
    monkeypatch.setattr(transfer, "read_run", read_run)


@PAGERS
@pytest.mark.parametrize("budget", [SMALL, Budget(device=1, host=LEAST_HOST + 3)])
def test_a_slow_disk_changes_no_bit(
    budget: Budget, pager: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots are used again while their old pages still wait for the writer; pages are read before
    they have been written."""
    model = tiny(MODEL, "bfloat16")
    dawdle(monkeypatch, writes=0.003, reads=0.001)
    file = new_file(tmp_path / "s.kv", model)
    with open_engine(model, budget, file=file, pager=pager) as engine:
        sequence = engine.new_sequence()
        first = listen(engine, sequence, text(300), 8)
        engine.commit(sequence)
        then = listen(engine, sequence, text(90, 2), 4)
        assert engine.telemetry.sample().stall_s > 0.05
    assert first.same_bits(alone((300, 1, 8)))
    assert then.same_bits(alone((300, 1, 8), (90, 2, 4)))


def test_a_sequence_dropped_with_writes_under_way_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its slots and its places in the spill file belong to the next sequence at once."""
    dawdle(monkeypatch, writes=0.003, reads=0.0)
    with open_engine(tiny(MODEL, "bfloat16"), SMALLEST) as engine:
        for seed in (1, 2, 3):
            sequence = engine.new_sequence()
            heard = listen(engine, sequence, text(200, seed), 2)
            engine.drop(sequence)
    assert heard.same_bits(alone((200, 3, 2)))


# -- misuse and the end --------------------------------------------------------------------


def spilled(engine: Engine) -> Sequence:
    sequence = engine.new_sequence()
    listen(engine, sequence, text(100), 0)
    return sequence


def test_a_file_holds_one_sequence() -> None:
    """A second one would write over pages that the first, or a fork of it, still reads."""
    with open_engine(tiny(), SMALLEST) as engine:
        first = spilled(engine)
        with pytest.raises(AssertionError, match="taken"):
            engine.new_sequence()
        fork = engine.fork(first)
        engine.drop(first)
        with pytest.raises(AssertionError, match="taken"):
            engine.new_sequence()
        engine.drop(fork)
        engine.new_sequence()


def test_a_saved_session_is_resumed_and_not_begun_again(tmp_path: Path) -> None:
    path = saved(tmp_path / "s.kv", 20)
    file = SessionFile.open(path, writable=True)
    with open_engine(tiny(MODEL, "bfloat16"), file=file) as engine:
        with pytest.raises(AssertionError, match="taken"):
            engine.new_sequence()
        assert engine.resume().num_tokens == 20


def test_a_fork_is_never_committed(tmp_path: Path) -> None:
    model = tiny()
    with open_engine(model, file=new_file(tmp_path / "s.kv", model)) as engine:
        fork = engine.fork(spilled(engine))
        with pytest.raises(AssertionError, match="forks"):
            engine.commit(fork)


def test_closing_stops_the_threads_and_keeps_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dawdle(monkeypatch, writes=0.002, reads=0.0)
    model, path = tiny(MODEL, "bfloat16"), tmp_path / "s.kv"
    with open_engine(model, SMALLEST, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(64), 0)
        engine.commit(sequence)
        listen(engine, sequence, text(300, 2), 2)
        assert any(thread.name.startswith("kv-") for thread in threading.enumerate())
    assert not any(thread.name.startswith("kv-") for thread in threading.enumerate())
    engine.close()  # twice is harmless
    with SessionFile.open(path, writable=False) as file:
        assert file.kv_tokens == 64


def test_a_spill_file_leaves_nothing_behind(tmp_path: Path) -> None:
    with open_engine(tiny(), SMALLEST, spill_folder=tmp_path) as engine:
        listen(engine, engine.new_sequence(), text(300), 0)
        assert engine.telemetry.sample().written_bytes > 0
        assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == []
