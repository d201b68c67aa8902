"""Sessions whose pages are coded: written by any codec, read again, and the same each time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_kit import (
    RESIDENT,
    SMALL,
    Budget,
    Heard,
    listen,
    one_thread,
    open_engine,
    text,
    tiny,
)
from session_faults import spoil

from engine.assembly import new_session
from engine.codecs import CODECS
from engine.config import CODEC_NAMES, KVCodecs
from engine.errors import ConfigError, IdentityMismatch, PageCorrupt, UnsupportedVersion
from engine.session import SessionFile, describe, drop_kv, verify

__all__ = ["one_thread"]

CODED = [name for name in CODECS if name != "raw"]
TOKENS = 500


def quiet(done: int, total: int) -> None:
    assert done <= total


def write(path: Path, codec: str, budget: Budget = RESIDENT, answer: int = 8) -> Heard:
    """A session of some text and an answer, kept in a codec."""
    model = tiny("llama", "bfloat16")
    settings = {"kv_codecs": KVCodecs(codec)}
    file = new_session(path, model, codec)
    with open_engine(model, budget, file=file, **settings) as engine:
        sequence = engine.new_sequence()
        heard = listen(engine, sequence, text(TOKENS), answer)
        engine.commit(sequence)
    return heard


def read(path: Path, codec: str, budget: Budget, question: int = 2, answer: int = 8) -> Heard:
    """What is answered to a session that is read again; nothing of it is kept."""
    model = tiny("llama", "bfloat16")
    file = SessionFile.open(path, writable=True)
    with open_engine(model, budget, file=file, kv_codecs=KVCodecs(codec)) as engine:
        return listen(engine, engine.resume(), text(20, seed=question), answer)


def test_the_names_are_those_of_the_table() -> None:
    assert tuple(CODECS) == CODEC_NAMES


@pytest.mark.parametrize("codec", CODED)
def test_a_session_in_any_codec_reads_the_same_each_time(tmp_path: Path, codec: str) -> None:
    """However its pages come up: all at once, or part by part through the smallest tiers."""
    path = tmp_path / "s.kv"
    write(path, codec)
    summary = describe(path)
    assert summary.identity.codec == codec
    raw = summary.geometry.num_pages(summary.kv_tokens) * summary.geometry.page_bytes
    assert summary.kv_bytes < raw * 0.7
    assert verify(path, quiet).faults == ()
    first = read(path, codec, RESIDENT)
    assert read(path, codec, RESIDENT).same_bits(first)
    assert read(path, codec, SMALL).same_bits(first)


@pytest.mark.parametrize("codec", CODED)
def test_what_stays_in_memory_is_not_touched_by_the_codec(tmp_path: Path, codec: str) -> None:
    assert write(tmp_path / "c.kv", codec).same_bits(write(tmp_path / "r.kv", "raw"))


@pytest.mark.parametrize(("codec", "most"), [("int8", 0.02), ("int4", 0.2)])
def test_what_is_read_again_is_near_what_was_written(
    tmp_path: Path, codec: str, most: float
) -> None:
    write(tmp_path / "raw.kv", "raw")
    write(tmp_path / "coded.kv", codec)
    raw, coded = read(tmp_path / "raw.kv", "raw", SMALL), read(tmp_path / "coded.kv", codec, SMALL)
    probabilities = [torch.softmax(heard.logits[0].float(), -1) for heard in (raw, coded)]
    assert not torch.equal(*probabilities)
    apart = float((probabilities[0] - probabilities[1]).abs().sum()) / 2
    assert apart < most


@pytest.mark.parametrize("codec", CODED)
def test_a_run_that_streams_while_it_reads(tmp_path: Path, codec: str) -> None:
    """Pages leave memory while the text is read, come back decoded, and are whole in the file."""
    write(tmp_path / "s.kv", codec, SMALL)
    assert verify(tmp_path / "s.kv", quiet).faults == ()
    assert read(tmp_path / "s.kv", codec, SMALL).same_bits(read(tmp_path / "s.kv", codec, RESIDENT))


def test_pages_without_a_session_spill_in_the_codec(tmp_path: Path) -> None:
    model = tiny("llama", "bfloat16")
    heard = []
    for codec in ("int4", "int4", "raw"):
        settings = {"kv_codecs": KVCodecs(codec), "spill_folder": tmp_path}
        with open_engine(model, SMALL, **settings) as engine:
            assert engine.memory_plan.needs_disk
            sequence = engine.new_sequence()
            heard.append(listen(engine, sequence, text(TOKENS), 4))
            written = engine.telemetry.sample().written_bytes
            assert written > 0
    assert heard[0].same_bits(heard[1])
    assert not heard[0].same_bits(heard[2])


def test_another_codec_is_refused_by_name(tmp_path: Path) -> None:
    model = tiny("llama", "bfloat16")
    write(tmp_path / "s.kv", "int8")
    for codec in ("raw", "int4"):
        file = SessionFile.open(tmp_path / "s.kv", writable=True)
        with (
            pytest.raises(IdentityMismatch, match=f"'int8', this run's as '{codec}'") as caught,
            open_engine(model, file=file, kv_codecs=KVCodecs(codec)),
        ):
            pass
        file.close()
        assert "--kv-dtype" in caught.value.advice


def test_a_codec_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    model = tiny("llama", "bfloat16")
    identity = replace(describe_identity(tmp_path), codec="int2")
    coded = CODECS["int4"].sizes(model.geometry)
    with SessionFile.create(tmp_path / "n.kv", identity, model.geometry, coded=coded) as file:
        file.commit(kv_tokens=0, token_ids=range(9))
        with (
            pytest.raises(UnsupportedVersion, match="coded as 'int2'"),
            open_engine(model, file=file, kv_codecs=KVCodecs("int4")),
        ):
            pass


def describe_identity(folder: Path):  # type: ignore[no-untyped-def]
    """The identity of a session by the tiny model."""
    write(folder / "i.kv", "raw", answer=0)
    return describe(folder / "i.kv").identity


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_codecs": KVCodecs("int8"), "pager": "unified"}, "mapped"),
        ({"kv_codecs": KVCodecs("int8", "int8")}, "in RAM"),
        ({"kv_codecs": KVCodecs("int5")}, "no codec 'int5'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_computed(
    settings: dict[str, object], message: str
) -> None:
    with (
        pytest.raises(ConfigError, match=message),
        open_engine(tiny("llama", "bfloat16"), **settings),
    ):
        pass


@pytest.mark.parametrize("codec", CODED)
def test_a_damaged_page_is_named_and_comes_back_to_the_bit(tmp_path: Path, codec: str) -> None:
    """It is computed from raw pages as it was at first, coded again, and has its checksum again."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    write(path, codec, answer=0)
    before = path.read_bytes()
    page = 300 // model.geometry.page_tokens
    spoil(path, page)
    with pytest.raises(PageCorrupt, match=f"page {page}"):
        read(path, codec, RESIDENT)
    file = SessionFile.open(path, writable=True)
    codecs = KVCodecs(codec)
    with open_engine(model, file=file, kv_codecs=codecs, fork_tokens=384) as engine:
        computed = engine.recompute(256, 384, local_window=None)
        assert engine.restore_page(page, computed[page - 16])
    assert path.read_bytes() == before
    assert verify(path, quiet).faults == ()


def test_what_was_given_up_is_computed_and_coded_again(tmp_path: Path) -> None:
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    write(path, "int8", answer=0)
    with SessionFile.open(path, writable=True) as file:
        drop_kv(file, 256)
    file = SessionFile.open(path, writable=True)
    with open_engine(model, file=file, kv_codecs=KVCodecs("int8")) as engine:
        sequence = engine.resume()
        listen(engine, sequence, [], 0)
        engine.commit(sequence)
    assert describe(path).kv_tokens == TOKENS
    assert verify(path, quiet).faults == ()


def test_pages_that_are_brought_ahead_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    write(path, "int4")
    model, budget = tiny("llama", "bfloat16"), Budget(device=6, host=24)
    heard = []
    for prefetch in ((), ("sequential",)):
        file = SessionFile.open(path, writable=True)
        settings = {"kv_codecs": KVCodecs("int4"), "prefetch": prefetch}
        with open_engine(model, budget, file=file, **settings) as engine:
            heard.append(listen(engine, engine.resume(), text(20, seed=2), 8))
    assert heard[0].same_bits(heard[1])
