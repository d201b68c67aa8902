"""stdout carries the answer alone, stderr the rest, and neither obeys what a document says."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.table import Table

from engine.telemetry import Phase, Telemetry, TierUse
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.results import Citation, RunResult, Skipped, io_of, tiers_of

ESCAPE = "\x1b["


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    def write(self, text: str, /) -> int:
        raise BrokenPipeError


def make(stdout: io.StringIO | None = None, stderr: io.StringIO | None = None, **options: object):
    out, err = stdout or io.StringIO(), stderr or io.StringIO()
    return Output(RunOptions(**options), out, err), out, err


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_an_answer_streams_to_stdout_alone_and_ends_with_one_newline() -> None:
    output, out, err = make()
    for piece in ("The ", "", "bridge", "."):
        output.answer_token(piece)
    output.end_answer()
    output.end_answer()
    assert (out.getvalue(), err.getvalue()) == ("The bridge.\n", "")


def test_an_answer_that_ends_its_line_gets_no_second_newline() -> None:
    output, out, _ = make()
    output.answer_token("done\n")
    output.end_answer()
    assert out.getvalue() == "done\n"


def test_control_characters_of_a_model_do_not_reach_the_terminal() -> None:
    output, out, _ = make(Terminal())
    output.answer_token("a\x1b]0;title\x07b\r\x00\x9bc\td\u202ee")
    assert out.getvalue() == "a]0;titlebc\tde"


def test_a_file_name_that_is_not_utf8_can_be_said() -> None:
    assert clean("bad\udcff.txt") == "bad\ufffd.txt"


def test_under_json_stdout_holds_one_object() -> None:
    output, out, _ = make(json=True)
    output.answer_token("streamed")
    output.end_answer()
    output.json({"path": Path("a"), "text": "\udcff\x1b"})
    assert json.loads(out.getvalue()) == {"path": "a", "text": "\ufffd\x1b"}
    assert "\x1b" not in out.getvalue()


def test_status_and_warnings_go_to_stderr_without_escapes_into_a_pipe() -> None:
    output, out, err = make()
    output.status("reading [id]")
    output.warn("page 2 of x")
    assert (out.getvalue(), err.getvalue()) == ("", "reading [id]\nwarning: page 2 of x\n")


def test_quiet_leaves_errors() -> None:
    output, _, err = make(quiet=True, verbose=True)
    output.status("s")
    output.detail("d")
    output.warn("w")
    output.citations([Citation("a")])
    output.error("broken", "", 1)
    assert err.getvalue() == "kvcli: error: broken\n"


def test_details_are_for_verbose() -> None:
    plain, _, plain_err = make()
    verbose, _, verbose_err = make(verbose=True)
    plain.detail("d")
    verbose.detail("d")
    assert (plain_err.getvalue(), verbose_err.getvalue()) == ("", "d\n")


def test_citations_go_to_stderr_and_only_without_json() -> None:
    cited = [Citation("r.pdf", page=12, weight=0.9, text='r.pdf p. 12 (labelled "xii")')]
    output, out, err = make()
    output.citations(cited)
    assert out.getvalue() == ""
    assert 'r.pdf p. 12 (labelled "xii")' in err.getvalue()
    as_json, _, json_err = make(json=True)
    as_json.citations(cited)
    assert json_err.getvalue() == ""


@pytest.mark.parametrize(
    ("terminal", "color", "variables", "colored"),
    [
        (True, "auto", {}, True),
        (False, "auto", {}, False),
        (True, "auto", {"NO_COLOR": "1"}, False),
        (True, "auto", {"TERM": "dumb"}, False),
        (True, "never", {}, False),
        (True, "never", {"FORCE_COLOR": "1"}, False),
        (False, "always", {}, True),
        (False, "auto", {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colour_of_stderr(
    terminal: bool, color: str, variables: dict[str, str], colored: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    output, _, err = make(stderr=Terminal() if terminal else io.StringIO(), color=color)
    output.warn("yellow")
    assert (f"{ESCAPE}33m" in err.getvalue()) is colored


def test_the_two_streams_are_decided_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR must not colour what goes into a file."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    output, out, err = make(stderr=Terminal())
    table = Table("[id]")
    output.show(table)
    output.warn("w")
    assert ESCAPE not in out.getvalue()
    assert ESCAPE in err.getvalue()


def test_a_table_in_a_file_is_not_cut_to_a_screen() -> None:
    output, out, _ = make()
    table = Table.grid()
    table.add_row("x" * 150, "end")
    output.show(table)
    assert out.getvalue() == "x" * 150 + "end\n"


def test_a_broken_stderr_does_not_stop_the_answer() -> None:
    output, out, _ = make(stderr=Broken())
    output.status("nobody hears")
    output.answer_token("still")
    assert out.getvalue() == "still"


def test_a_broken_stdout_is_told_to_the_caller() -> None:
    output, _, _ = make(stdout=Broken())
    with pytest.raises(BrokenPipeError):
        output.answer_token("x")
    with pytest.raises(BrokenPipeError):
        output.show(Table("x"))


def test_the_result_has_the_documented_fields() -> None:
    telemetry = Telemetry()
    telemetry.publish_tiers((TierUse("disk", None, 5, 2, 0),), 2)
    telemetry.count_written(7)
    with telemetry.phase(Phase.READ):
        pass
    sample = telemetry.sample()
    result = RunResult(
        answer="yes",
        model="m",
        mode="exact",
        citations=(Citation("a.py", lines=(4, 9), name="f", weight=0.5, text="a.py:4-9"),),
        tiers=tiers_of(sample),
        io=io_of(sample),
        skipped=(Skipped("b", "binary"),),
        warnings=("w",),
    )
    found = json.loads(json.dumps(result.to_json()))
    assert list(found) == [
        "answer", "found", "citations", "sections", "usage", "tiers", "io", "timings", "session",
        "model", "mode", "skipped", "warnings",
    ]  # fmt: skip
    assert found["citations"] == [
        {"path": "a.py", "page": None, "label": None, "lines": [4, 9], "name": "f", "weight": 0.5}
    ]
    assert list(found["usage"]) == [
        "prompt_tokens", "reused_tokens", "recomputed_tokens", "new_tokens",
    ]  # fmt: skip
    assert found["tiers"] == [{"name": "disk", "capacity_bytes": None, "used_bytes": 5, "pages": 2}]
    assert list(found["io"]) == [
        "read_bytes", "written_bytes", "stall_s", "compute_s", "idle_s", "stalls",
        "prefetch", "read_ahead", "major_faults",
    ]  # fmt: skip
    assert list(found["io"]["stalls"]) == ["read", "write", "commit", "decode", "lock"]
    assert found["io"]["written_bytes"] == 7
    assert list(found["timings"]) == ["load_s", "ingest_s", "first_token_s", "decode_s"]
    assert found["skipped"] == [{"path": "b", "reason": "binary"}]
