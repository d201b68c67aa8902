"""Ctrl-C, SIGTERM and kill -9 at any moment: what was kept is said and is true, and goes on."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from child_kit import Spawn, checkpointed_steps, mark, slow_steps
from cli_kit import Kvcli, kv_tokens, make_session, stored_ids, stored_kv
from tiny_models import tiny_tokenizer

from engine.stepper import Stepper
from kvcli import documents, model_choice

KEPT = re.compile(r"interrupted; ([\d,]+) of ([\d,]+) tokens are kept in (\S+)")
NOTHING_KEPT = ["kvcli: error: interrupted; nothing was kept"]


# -- scenarios: functions that run in the child ----------------------------------------------------


def endless_second_step() -> None:
    checkpointed_steps()
    real, count = Stepper.forward, 0

    def forward(stepper: Stepper, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            mark("inside")
            time.sleep(60)
        return real(stepper, *arguments)

    Stepper.forward = forward  # type: ignore[method-assign]


def hanging_load() -> None:
    real = model_choice.load_model

    def load(*arguments: Any, **more: Any) -> Any:
        model = real(*arguments, **more)
        mark("here")
        time.sleep(60)
        return model

    model_choice.load_model = load  # type: ignore[assignment]


def hanging_read() -> None:
    def read(*_: Any, **__: Any) -> Any:
        mark("here")
        time.sleep(60)

    documents.read_corpus = read  # type: ignore[assignment]


# -- before there is anything to keep --------------------------------------------------------------


def leftovers(folder: Path) -> list[str]:
    """Session files and their temporary forerunners."""
    return sorted(path.name for path in folder.iterdir() if ".kv" in path.name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("scenario", [hanging_load, hanging_read])
def test_nothing_is_kept_and_left_before_the_compute(
    spawn: Spawn, notes: Path, tmp_path: Path, scenario: Any, number: signal.Signals
) -> None:
    child = spawn("ingest", notes, "-o", "s.kv", scenario=scenario)
    child.wait_for("here")
    child.send(number)
    ran = child.end()
    assert ran.code == 130
    assert ran.error[:1] == NOTHING_KEPT
    assert ran.out == ""
    assert leftovers(tmp_path) == []


# -- while documents are read ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_ingest_keeps_every_whole_step(
    spawn: Spawn, kvcli: Kvcli, long_notes: Path, long_model: Path, number: signal.Signals
) -> None:
    """It says how many tokens are kept; resume computes the others, once."""
    child = spawn("ingest", long_notes, "-o", "s.kv", scenario=slow_steps, model=long_model)
    child.wait_for("step2")
    child.send(number)
    ran = child.end()
    assert ran.code == 130
    found = KEPT.search(ran.error[0])
    assert found is not None, ran.err
    kept, known = (int(found[i].replace(",", "")) for i in (1, 2))
    assert kept == kv_tokens(Path("s.kv")) >= 2048
    assert known == len(stored_ids(Path("s.kv")))
    assert ran.error[1] == "  Go on with: kvcli resume s.kv"
    usage = kvcli("resume", "s.kv", "Why?", "--max-tokens", 3, "--json", model=long_model).json[
        "usage"
    ]
    assert (usage["reused_tokens"], usage["recomputed_tokens"]) == (kept, known - kept)
    again = kvcli("resume", "s.kv", "Why?", "--max-tokens", 3, "--json", model=long_model).json[
        "usage"
    ]
    assert again["recomputed_tokens"] == 0


def test_without_a_session_an_interrupt_says_that_nothing_is_kept(
    spawn: Spawn, long_notes: Path, long_model: Path
) -> None:
    child = spawn("summarize", long_notes, scenario=slow_steps, model=long_model)
    child.wait_for("step1")
    child.send(signal.SIGINT)
    ran = child.end()
    assert (ran.code, ran.out) == (130, "")
    assert ran.error == [*NOTHING_KEPT, "  Work is kept in a session: --session S.kv."]


def test_a_second_ctrl_c_stops_at_once_at_the_last_checkpoint(
    spawn: Spawn, kvcli: Kvcli, long_notes: Path, long_model: Path
) -> None:
    child = spawn(
        "ingest", long_notes, "-o", "s.kv", scenario=endless_second_step, model=long_model
    )
    child.wait_for("inside")
    child.send(signal.SIGINT)
    time.sleep(0.6)
    child.send(signal.SIGINT)
    ran = child.end()
    assert ran.code == 130
    assert "stopping after this step; press Ctrl-C again to stop at once" in ran.err
    assert "interrupted; 1,024 of " in ran.error[0]
    assert kv_tokens(Path("s.kv")) == 1024
    assert kvcli("resume", "s.kv", "Why?", "--max-tokens", 3, model=long_model).code == 0


def test_a_killed_ingest_is_finished_by_resume_to_the_last_bit(
    spawn: Spawn, kvcli: Kvcli, long_notes: Path, long_model: Path
) -> None:
    """Killed within and after several steps, the file always opens to a whole commit; what resume
    makes of it is what an undisturbed run would have made: KV, answer, sources."""
    question = ("Which pier?", "--max-tokens", 8, "--json")
    kvcli("ingest", long_notes, "-o", "whole.kv", model=long_model)
    documents = len(stored_ids(Path("whole.kv")))
    expected = kvcli("resume", "whole.kv", *question, model=long_model).json
    seen = set()
    for number, (step, delay) in enumerate(
        [(1, 0.0), (1, 0.02), (2, 0.03), (4, 0.01), (5, 0.04), (7, 0.025), (8, 0.0), (9, 0.06)]
    ):
        name = f"killed-{number}.kv"
        child = spawn(
            "ingest", long_notes, "-o", name, scenario=checkpointed_steps, model=long_model
        )
        child.wait_for(f"step{step}")
        time.sleep(delay)
        child.send(signal.SIGKILL)
        child.end()
        seen.add(kv_tokens(Path(name)))
        result = kvcli("resume", name, *question, model=long_model).json
        assert result["usage"]["reused_tokens"] + result["usage"]["recomputed_tokens"] == documents
        assert (result["answer"], result["citations"]) == (
            expected["answer"],
            expected["citations"],
        )
        assert stored_kv(Path(name)) == stored_kv(Path("whole.kv"))
        assert stored_ids(Path(name)) == stored_ids(Path("whole.kv"))
    again = kvcli("resume", name, "Why?", "--max-tokens", 2, "--json", model=long_model).json
    assert again["usage"]["recomputed_tokens"] == 0
    assert len(seen) > 3


def test_a_killed_ingest_leaves_no_temporary_file_to_the_next(
    spawn: Spawn, kvcli: Kvcli, long_notes: Path, long_model: Path, tmp_path: Path
) -> None:
    child = spawn("ingest", long_notes, "-o", "s.kv", scenario=slow_steps, model=long_model)
    child.wait_for("step1")
    child.send(signal.SIGKILL)
    child.end()
    assert kvcli("ingest", long_notes, "-o", "s.kv", "--force", model=long_model).code == 0
    assert leftovers(tmp_path) == ["s.kv"]


# -- while an answer is written --------------------------------------------------------------------


def test_an_interrupted_answer_keeps_what_was_said(spawn: Spawn, kvcli: Kvcli, notes: Path) -> None:
    make_session(kvcli, notes)
    child = spawn("resume", "s.kv", "Which pier?", "--max-tokens", 200, scenario=slow_steps)
    child.wait_for("step4")
    child.send(signal.SIGINT)
    ran = child.end()
    assert ran.code == 130
    assert KEPT.search(ran.error[0])
    assert ran.out.strip()
    ids = stored_ids(Path("s.kv"))
    assert kv_tokens(Path("s.kv")) == len(ids)
    said = tiny_tokenizer().decode(ids).split("<|im_start|>assistant\n")[-1]
    whole = kvcli("ask", "--doc", notes, "Which pier?", "--max-tokens", 20, "--json").json["answer"]
    assert whole.startswith(said.strip().rstrip("\ufffd"))
    more = kvcli("resume", "s.kv", "And then?", "--max-tokens", 2, "--json").json
    assert more["usage"]["recomputed_tokens"] == 0
    turns = tiny_tokenizer().decode(stored_ids(Path("s.kv")))
    assert turns.count("<|im_start|>user\n") == 2


def test_a_question_stopped_before_its_answer_is_not_kept(
    spawn: Spawn, kvcli: Kvcli, notes: Path
) -> None:
    """The same question asked again is answered as if it had never been stopped."""
    tokens = make_session(kvcli, notes)
    child = spawn("resume", "s.kv", "Which pier?", "--max-tokens", 8, scenario=slow_steps)
    child.wait_for("step1")
    child.send(signal.SIGINT)
    ran = child.end()
    assert (ran.code, ran.out) == (130, "")
    assert len(stored_ids(Path("s.kv"))) == tokens
    resumed = kvcli("resume", "s.kv", "Which pier?", "--max-tokens", 8, "--json").json
    direct = kvcli("ask", "--doc", notes, "Which pier?", "--max-tokens", 8, "--json").json
    assert resumed["answer"] == direct["answer"]


def test_a_kill_in_an_answer_keeps_a_conversation_that_goes_on(
    spawn: Spawn, kvcli: Kvcli, notes: Path
) -> None:
    """Checkpoints within the answer hold part of it; the next turn is well-formed all the same."""
    make_session(kvcli, notes)
    child = spawn("resume", "s.kv", "Which pier?", "--max-tokens", 99, scenario=checkpointed_steps)
    child.wait_for("step5")
    child.send(signal.SIGKILL)
    child.end()
    assert kvcli("resume", "s.kv", "And then?", "--max-tokens", 2).code == 0
    text = tiny_tokenizer().decode(stored_ids(Path("s.kv")))
    assert text.count("Question: ") == 1
    assert text.count("<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n") == 1


def test_the_turns_of_an_interrupted_answer_are_counted(
    spawn: Spawn, kvcli: Kvcli, notes: Path
) -> None:
    make_session(kvcli, notes)
    child = spawn("resume", "s.kv", "Which pier?", "--max-tokens", 99, scenario=slow_steps)
    child.wait_for("step3")
    child.send(signal.SIGTERM)
    assert child.end().code == 130
    assert kvcli("inspect", "s.kv", "--json").json["notes"]["turns"] == 1


def test_an_interrupted_run_as_json_is_one_object(
    kvcli: Kvcli, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes within the first step."""
    real = Stepper.forward

    def forward(stepper: Stepper, *arguments: Any) -> Any:
        monkeypatch.setattr(Stepper, "forward", real)
        signal.raise_signal(signal.SIGINT)
        return real(stepper, *arguments)

    monkeypatch.setattr(Stepper, "forward", forward)
    ran = kvcli("ask", "--doc", notes, "--session", "s.kv", "--json", "Why?")
    assert ran.code == 130
    assert ran.json["error"]["exit_code"] == 130
    assert KEPT.search(ran.json["error"]["message"])
    assert kv_tokens(Path("s.kv")) == len(stored_ids(Path("s.kv")))
