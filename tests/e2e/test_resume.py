"""Resume means resume: a saved sequence goes on as if nothing had happened, to the bit.

Whatever interrupts a run, the engine stays whole and the file stays at its last commit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_kit import (
    PAGE,
    RESIDENT,
    SMALL,
    SMALL_DEVICE,
    SMALLEST,
    STEP,
    Budget,
    Heard,
    listen,
    new_file,
    open_engine,
    text,
    tiny,
)

import engine.attention.exact
from engine.errors import IdentityMismatch
from engine.model.load import LoadedModel
from engine.session import SessionFile

MORE, ANSWER = 150, 5


def reopen(path: Path) -> SessionFile:
    return SessionFile.open(path, writable=True)


def save(path: Path, model: LoadedModel, num_tokens: int, budget: Budget = RESIDENT) -> None:
    """A closed session of the first tokens of the text."""
    with open_engine(model, budget, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(num_tokens), 0)
        engine.commit(sequence)


def undisturbed(model: LoadedModel, *runs: tuple[list[int], int]) -> Heard:
    """What one engine with room for everything says to all runs of ids, one after the other."""
    with open_engine(model) as engine:
        sequence = engine.new_sequence()
        for ids, answer in runs:
            heard = listen(engine, sequence, ids, answer)
    return heard


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "saved",
    [1, 200, 144, 128, 320],
    ids=["one token", "mid-page", "page border", "segment border", "many segments"],
)
def test_a_resumed_sequence_goes_on_to_the_bit(saved: int, dtype: str, tmp_path: Path) -> None:
    model, path = tiny("llama", dtype), tmp_path / "s.kv"
    expected = undisturbed(model, (text(saved), 0), (text(MORE, 2), ANSWER))
    for budget in (RESIDENT, SMALLEST, SMALL_DEVICE):
        path.unlink(missing_ok=True)
        save(path, model, saved, SMALL)
        with open_engine(model, budget, file=reopen(path)) as engine:
            sequence = engine.resume()
            assert sequence.num_tokens == saved and sequence.token_ids == text(saved)
            engine.check_integrity()
            assert listen(engine, sequence, text(MORE, 2), ANSWER).same_bits(expected)


@pytest.mark.parametrize("recompute", [64, 128, 192, 320])
@pytest.mark.parametrize("budget", [RESIDENT, SMALL, SMALLEST], ids=["all", "ram", "one page"])
def test_what_is_computed_again_is_what_was_stored(
    budget: Budget, recompute: int, tmp_path: Path
) -> None:
    """The same bits, nothing written again, and the file takes what follows."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    expected = undisturbed(model, (text(330), 0), (text(MORE, 2), ANSWER))
    save(path, model, 330)
    seen: list[int] = []
    with open_engine(model, budget, file=reopen(path)) as engine:
        sequence = engine.resume(recompute=recompute, on_step=lambda s: seen.append(s.num_tokens))
        assert sequence.num_tokens == 330 and seen[-1] == recompute
        assert engine.telemetry.sample().written_bytes == 0
        engine.check_integrity()
        assert listen(engine, sequence, text(MORE, 2), ANSWER).same_bits(expected)
        engine.commit(sequence)
    with open_engine(model, budget, file=reopen(path)) as engine:
        assert engine.resume().num_tokens == 330 + MORE + ANSWER


def test_stopping_while_it_is_computed_again_leaves_the_file_alone(tmp_path: Path) -> None:
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    save(path, model, 330)
    before = path.read_bytes()

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with open_engine(model, file=reopen(path)) as engine, pytest.raises(KeyboardInterrupt):
        engine.resume(recompute=256, on_step=stop)
    assert path.read_bytes() == before


@pytest.mark.parametrize("architecture", ["gemma2", "mistral", "phi3"])
def test_sliding_and_partial_rotation_resume_too(architecture: str, tmp_path: Path) -> None:
    model, path = tiny(architecture), tmp_path / "s.kv"
    save(path, model, 300)
    with open_engine(model, SMALL_DEVICE, file=reopen(path)) as engine:
        heard = listen(engine, engine.resume(), text(MORE, 2), ANSWER)
    assert heard.same_bits(undisturbed(model, (text(300), 0), (text(MORE, 2), ANSWER)))


def test_resuming_again_and_again(tmp_path: Path) -> None:
    """The same page is the tail of several commits, then a full page, then one of many."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    runs = [(text(count, seed), 2) for seed, count in enumerate((3, 4, 5, 70, 9, 200))]
    file, heard = new_file(path, model), Heard()
    for number, (ids, answer) in enumerate(runs):
        with open_engine(model, SMALL, file=file) as engine:
            sequence = engine.resume() if number else engine.new_sequence()
            heard = listen(engine, sequence, ids, answer)
            engine.commit(sequence)
        file = reopen(path)
    file.close()
    assert heard.same_bits(undisturbed(model, *runs))


def test_an_answer_cut_off_before_its_last_token_had_kv(tmp_path: Path) -> None:
    """Ids may run ahead of the KV in a commit; the rest is computed after resuming."""
    model, path = tiny(), tmp_path / "s.kv"
    with open_engine(model, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(100), 0)
        sequence.token_ids.extend(text(30, 2))
        engine.commit(sequence)
    with open_engine(model, file=reopen(path)) as engine:
        sequence = engine.resume()
        assert (sequence.num_tokens, len(sequence.token_ids)) == (100, 130)
        heard = listen(engine, sequence, [], 2)
    assert heard.same_bits(undisturbed(model, (text(100), 0), (text(30, 2), 2)))


class Stop(Exception):
    """Stands for Ctrl-C."""


def test_an_unfinished_ingest_is_finished(tmp_path: Path) -> None:
    """Stopped between two steps and committed; later finished under another budget."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    with open_engine(model, SMALL, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        sequence.token_ids.extend(text(600))

        def stop_after_three() -> None:
            if sequence.num_tokens >= 3 * STEP:
                raise Stop

        with pytest.raises(Stop):
            engine.compute(sequence, on_step=stop_after_three)
        engine.check_integrity()
        engine.commit(sequence)
    with open_engine(model, SMALLEST, file=reopen(path)) as engine:
        sequence = engine.resume()
        assert (sequence.num_tokens, len(sequence.token_ids)) == (3 * STEP, 600)
        heard = listen(engine, sequence, [], ANSWER)
        assert engine.telemetry.sample().read_bytes > 0
    assert heard.same_bits(undisturbed(model, (text(600), ANSWER)))


def test_checkpoints_bound_what_a_crash_costs(tmp_path: Path) -> None:
    """With a commit after every step, an engine that just ends loses no whole step."""
    model, path = tiny(), tmp_path / "s.kv"
    with open_engine(model, file=new_file(path, model), checkpoint_seconds=0.0) as engine:
        listen(engine, engine.new_sequence(), text(300), 0)
    with open_engine(model, file=reopen(path)) as engine:
        heard = listen(engine, engine.resume(), text(MORE, 2), ANSWER)
    assert heard.same_bits(undisturbed(model, (text(300), 0), (text(MORE, 2), ANSWER)))


# -- failures inside a step ----------------------------------------------------------------


def fail_at_call(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the `number`th attention call from now on fail, once."""
    real, calls = engine.attention.exact.attention_part, 0

    def failing(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            raise Stop
        return real(*args, **options)

    monkeypatch.setattr(engine.attention.exact, "attention_part", failing)


@pytest.mark.parametrize("budget", [RESIDENT, SMALL, SMALLEST])
@pytest.mark.parametrize("call", [1, 3, 8])
def test_a_step_that_fails_leaves_nothing_behind(
    budget: Budget, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefill step fails in the middle, when some of its segments are already being written."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    expected = undisturbed(model, (text(200), 0), (text(250, 2), ANSWER))
    with open_engine(model, budget, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(200), 0)
        engine.commit(sequence)
        sequence.token_ids.extend(text(250, 2))

        def stop() -> None:
            raise Stop

        # up to the next border of a segment, from where the failing step fills whole segments
        with pytest.raises(Stop):
            engine.compute(sequence, on_step=stop)
        fail_at_call(monkeypatch, call)
        with pytest.raises(Stop):
            engine.compute(sequence)
        engine.check_integrity()
        assert sequence.num_tokens == 256
        assert engine.telemetry.sample().total_pages == 256 // PAGE
        heard = listen(engine, sequence, [], ANSWER)
    assert heard.same_bits(expected)
    with reopen(path) as file:
        assert file.kv_tokens == 200 and list(file.token_ids) == text(200)


def test_a_failed_decode_step_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", "bfloat16")
    expected = undisturbed(model, (text(205), ANSWER))
    for budget in (RESIDENT, SMALL_DEVICE, SMALLEST):
        with open_engine(model, budget) as engine:
            sequence = engine.new_sequence()
            first = listen(engine, sequence, text(205), 1)
            sequence.token_ids.append(int(first.logits[-1].argmax()))
            fail_at_call(monkeypatch, 4)
            with pytest.raises(Stop):
                engine.compute(sequence)
            engine.check_integrity()
            rest = listen(engine, sequence, [], ANSWER - 2)
        monkeypatch.undo()
        assert all(map(torch.equal, [*first.logits, *rest.logits], expected.logits))


def test_after_a_failed_step_other_ids_may_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a segment was handed to the writer; the segment that is kept is another one."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    with open_engine(model, SMALLEST, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(128), 0)
        sequence.token_ids.extend(text(128, 7))
        fail_at_call(monkeypatch, 5)
        with pytest.raises(Stop):
            engine.compute(sequence)
        del sequence.token_ids[128:]
        listen(engine, sequence, text(10, 8), 0)
        heard = listen(engine, sequence, text(140, 9), 3)
        engine.commit(sequence)
    runs = [(text(128), 0), (text(10, 8), 0), (text(140, 9), 3)]
    assert heard.same_bits(undisturbed(model, *runs))
    with open_engine(model, SMALLEST, file=reopen(path)) as engine:
        after = listen(engine, engine.resume(), text(5), 0)
    assert after.same_bits(undisturbed(model, *runs, (text(5), 0)))


# -- files that do not fit -----------------------------------------------------------------


def test_a_file_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    model, path = tiny(), tmp_path / "s.kv"
    save(path, model, 20)
    fields = {
        "name": "model",
        "weights_fingerprint": "weights",
        "tokenizer_fingerprint": "tokenizer",
        "template_fingerprint": "template",
        "rope_fingerprint": "rope",
    }
    for attribute, name in fields.items():
        other = replace(model, **{attribute: "another"})
        with (
            reopen(path) as file,
            pytest.raises(IdentityMismatch, match=name),
            open_engine(other, file=file),
        ):
            pass


def test_a_file_with_other_pages_is_refused_by_name(tmp_path: Path) -> None:
    model, path = tiny(), tmp_path / "s.kv"
    save(path, model, 20)
    other = replace(model, geometry=replace(model.geometry, page_tokens=32))
    with (
        reopen(path) as file,
        pytest.raises(IdentityMismatch, match=r"page_tokens=16.*page_tokens=32"),
        open_engine(other, file=file),
    ):
        pass
