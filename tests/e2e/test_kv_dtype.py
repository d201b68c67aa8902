"""`--kv-dtype` on the command line: sessions that are made, asked, copied and repaired coded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_kit import Kvcli, make_session, stored_ids
from session_faults import opened, spoil

from engine.session import describe

CODECS = ("fp8", "int8", "int4", "k8v4")
QUIET = ("--dashboard", "off")


def ingest(kvcli: Kvcli, documents: Path, codec: str, name: str = "s.kv") -> Path:
    made = kvcli("ingest", *QUIET, "--kv-dtype", codec, documents, "-o", name)
    assert made.code == 0, made.err
    return Path(name)


def codec_of(path: Path) -> str:
    return describe(path).identity.codec


@pytest.mark.parametrize("codec", CODECS)
def test_a_session_in_any_codec_is_made_asked_and_verified(
    kvcli: Kvcli, notes: Path, codec: str
) -> None:
    session = ingest(kvcli, notes, codec)
    assert codec_of(session) == codec
    assert opened(session).root.read_version == 3
    answers = []
    for copy in ("a.kv", "b.kv"):
        assert shutil.copyfile(session, copy)
        ran = kvcli("resume", copy, "--json", "--max-tokens", "12", "Which pier?")
        assert ran.code == 0, ran.err
        assert ran.json["usage"]["recomputed_tokens"] == 0
        assert codec_of(Path(copy)) == codec
        answers.append(ran.json["answer"])
    assert answers[0] == answers[1]
    assert kvcli("ask", "--session", session, "--max-tokens", "4", "Which year?").code == 0
    verified = kvcli("verify", session)
    assert verified.code == 0, verified.err


def test_a_session_keeps_its_codec_and_another_is_refused_by_name(
    kvcli: Kvcli, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ingest(kvcli, notes, "int8")
    for command in (("resume", session), ("ask", "--session", session)):
        ran = kvcli(*command, "--kv-dtype", "int4", "Which pier?")
        assert ran.code == 5
        assert "coded as int8, this run's as int4" in ran.error[0]
        assert "kvcli compact --kv-dtype" in ran.error[1]
        assert kvcli(*command, "--kv-dtype", "disk=int8", "--max-tokens", "2", "Which?").code == 0
    monkeypatch.setenv("KVCLI_KV_DTYPE", "int4")
    assert kvcli("resume", session, "--max-tokens", "2", "Which pier?").code == 0
    assert codec_of(session) == "int8"


def test_a_variable_names_the_codec(
    kvcli: Kvcli, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVCLI_KV_DTYPE", "disk=k8v4,ram=raw")
    make_session(kvcli, notes)
    assert codec_of(Path("s.kv")) == "k8v4"


def test_a_raw_session_is_coded_once(kvcli: Kvcli, tool: Kvcli, session: Path) -> None:
    ids, before = stored_ids(session), describe(session)
    ran = tool("compact", session, "--kv-dtype", "int4", "--json")
    assert ran.code == 0, ran.err
    after = describe(session)
    assert stored_ids(session) == ids
    assert after.identity.codec == "int4" and after.kv_tokens == before.kv_tokens
    assert after.kv_bytes < before.kv_bytes / 2
    assert ran.json["bytes_after"] < ran.json["bytes_before"] / 2
    assert tool("verify", session).code == 0
    assert kvcli("resume", session, "--max-tokens", "4", "Which pier?").code == 0
    assert tool("compact", session, "--kv-dtype", "int4").code == 0
    assert codec_of(session) == "int4"
    for codec, told in (("int8", "coded once more"), ("raw", "cannot be had back")):
        ran = tool("compact", session, "--kv-dtype", codec)
        assert ran.code == 2 and told in ran.error[0]
        assert f"--rebuild --kv-dtype {codec}" in ran.error[1]
    assert tool("compact", session).code == 0
    assert codec_of(session) == "int4"


def test_coding_a_session_is_the_same_as_making_it_coded(
    kvcli: Kvcli, tool: Kvcli, notes: Path
) -> None:
    """What was computed in memory was coded from the same bits."""
    made = ingest(kvcli, notes, "int8", "made.kv")
    raw = ingest(kvcli, notes, "raw", "raw.kv")
    assert tool("compact", raw, "--kv-dtype", "int8").code == 0
    states = [opened(path).state for path in (made, raw)]
    extents = [state.segments.extent(1) for state in states]
    length = states[0].segments.layout(1).segment_stride
    first, second = (
        path.read_bytes()[extent : extent + length]
        for path, extent in zip((made, raw), extents, strict=True)
        if extent is not None
    )
    assert first == second


def test_a_session_is_computed_again_in_another_codec(kvcli: Kvcli, notes: Path) -> None:
    session = ingest(kvcli, notes, "int4")
    ran = kvcli("resume", "--rebuild", session, "--max-tokens", "2", "Which pier?")
    assert ran.code == 0 and codec_of(session) == "int4"
    ran = kvcli("resume", "--rebuild", session, "--kv-dtype", "raw", "--max-tokens", "2", "Which?")
    assert ran.code == 0 and codec_of(session) == "raw"


def test_a_fork_of_a_coded_session_is_coded_alike(
    kvcli: Kvcli, tool: Kvcli, long_notes: Path
) -> None:
    session = ingest(kvcli, long_notes, "int4")
    assert tool("fork", session, "f.kv").code == 0
    ran = kvcli("resume", "f.kv", "--json", "--max-tokens", "4", "Which pier?")
    assert ran.code == 0, ran.err
    assert ran.json["usage"]["reused_tokens"] > 8000
    assert codec_of(Path("f.kv")) == "int4"
    assert kvcli("verify", "f.kv").code == 0


def test_damage_in_a_coded_session_is_repaired_to_the_bit(kvcli: Kvcli, long_notes: Path) -> None:
    """The pages before a damaged one are computed again too: coded ones are not what it saw."""
    session = ingest(kvcli, long_notes, "int8")
    before = session.read_bytes()
    spoil(session, 40)
    spoil(session, 90)
    assert kvcli("verify", session).code == 5
    ran = kvcli("verify", "--repair", session)
    assert ran.code == 0, ran.err
    assert session.read_bytes() == before


def test_what_cannot_be_repaired_in_memory_is_given_up_and_computed_on_resume(
    kvcli: Kvcli, long_notes: Path
) -> None:
    session = ingest(kvcli, long_notes, "int8")
    spoil(session, 90)
    ran = kvcli("verify", "--repair", "--ram", "4MiB", session)
    assert "coded pages are not computed again" in ran.err
    assert describe(session).kv_tokens < 90 * 64
    assert kvcli("resume", session, "--max-tokens", "2", "Which pier?").code == 0
    assert kvcli("verify", session).code == 0


def test_a_coded_session_is_exported_and_taken_in(kvcli: Kvcli, tool: Kvcli, notes: Path) -> None:
    session = ingest(kvcli, notes, "int8")
    assert tool("export", session, "out.bin").code == 0
    assert tool("import", "out.bin", "-o", "in.kv").code == 0
    assert codec_of(Path("in.kv")) == "int8"
    assert stored_ids(Path("in.kv")) == stored_ids(session)
    assert kvcli("resume", "in.kv", "--max-tokens", "2", "Which pier?").code == 0


def test_a_coded_session_is_updated(kvcli: Kvcli, notes: Path) -> None:
    session = ingest(kvcli, notes, "int4")
    notes.write_text(notes.read_text() + "The last pier was painted green.\n")
    ran = kvcli("update", *QUIET, session)
    assert ran.code == 0, ran.err
    assert codec_of(session) == "int4"
    assert kvcli("verify", session).code == 0


def test_what_a_coded_session_takes_is_told(kvcli: Kvcli, long_notes: Path) -> None:
    raw = kvcli("inspect", "--json", long_notes).json
    found = kvcli("inspect", "--json", "--kv-dtype", "int4", long_notes).json
    assert (raw["kv_dtype"], found["kv_dtype"]) == ("raw", "int4")
    assert found["kv_bytes"] == raw["kv_bytes"]
    assert found["session_bytes"] < raw["session_bytes"] / 2
    assert "coded as int4" in kvcli("inspect", "--kv-dtype", "int4", long_notes).out
    session = ingest(kvcli, long_notes, "int4")
    summary = kvcli("inspect", "--json", session).json
    assert summary["identity"]["codec"] == "int4"
    assert summary["kv_bytes"] == describe(session).kv_bytes
    assert "coded as int4" in " ".join(kvcli("inspect", session).out.split())


def test_unified_paging_of_coded_pages_is_refused(kvcli: Kvcli, notes: Path) -> None:
    ran = kvcli("ingest", notes, "--kv-dtype", "int8", "--pager", "unified", "-o", "s.kv")
    assert ran.code == 2 and "mapped" in ran.error[0]
    assert not Path("s.kv").exists()


def test_a_long_text_is_asked_by_focus_through_coded_pages(kvcli: Kvcli, long_notes: Path) -> None:
    """Keys are scanned and the sketch is kept as ever; budgets so small that pages stream."""
    session = ingest(kvcli, long_notes, "int8")
    for lookup in ("scan", "sketch"):
        ran = kvcli(
            "resume", session, "--json", "--lookup", lookup, "--ram", "24MiB",
            "--max-tokens", "4", "In which year was pier 12 painted?",
        )  # fmt: skip
        assert ran.code == 0, ran.err
        assert ran.json["mode"].startswith("focus") and ran.json["citations"]
