"""From options to an open run: over documents, or over a session file.

Owns the order of things: cheap checks before expensive ones, nothing computed before everything is
known to fit, everything closed if it does not. Knows every part of kvcli by its front door only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from engine.engine import Engine
from engine.lookup import ProbeWay
from engine.model.load import LoadedModel
from engine.session import SessionFile
from engine.telemetry import Telemetry
from kvcli.bring_back import tokens_to_recompute
from kvcli.calibration import calibrated
from kvcli.conversation import Conversation
from kvcli.corpus.source_map import SourceMap
from kvcli.corpus.spans import Corpus
from kvcli.dashboard import Dashboard
from kvcli.documents import (
    COMFORT,
    UNKNOWN_TURN,
    Room,
    read_documents,
    require_new_session,
)
from kvcli.engine_setup import make_engine, new_file
from kvcli.fetch import cache_dir
from kvcli.focus import FocusConversation, require_room
from kvcli.ingest_settings import IngestSettings
from kvcli.known_disks import limits
from kvcli.metrics import MetricsFile
from kvcli.mode import Mode, Work, choose_mode
from kvcli.model_choice import lasting_name, load_chosen, same_model, same_pages
from kvcli.notes import Inputs, Notes
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.prometheus import PrometheusServer
from kvcli.prompts import Prompt, PromptBuilder
from kvcli.recent_sessions import remember_session
from kvcli.results import Skipped, Timings
from kvcli.run import Run
from kvcli.sizes import format_size
from kvcli.stopping import StopRequest
from kvcli.working_set import Reading


@dataclass(frozen=True, slots=True)
class _Watched:
    """What every run needs first: someone to speak to, a clock, and ears for Ctrl-C."""

    output: Output
    telemetry: Telemetry
    stop: StopRequest


def start(
    options: RunOptions,
    paths: Sequence[str],
    *,
    question: str | None,
    session: Path | None,
    overwrite: bool = False,
    work: Work = Work.QUESTIONS,
) -> Run:
    """Open a run over documents. Nothing is computed yet.

    Raises:
        KVError: The inputs, the model, a budget or the session file will not do.
    """
    with ExitStack() as stack:
        watched = _watch(options, stack)
        if session is not None:
            require_new_session(session, overwrite=overwrite)
        corpus = read_documents(options, paths, watched.output)
        model, load_s = load_chosen(options, watched.output, options.model)
        builder = PromptBuilder(model.tokenizer, model.name)
        prompt = builder.documents(corpus)
        room = UNKNOWN_TURN
        if question is not None:
            room = Room(len(builder.first_question(question)), options.max_tokens)
        mode = choose_mode(options, prompt, room, model.window)
        if question is not None and mode is Mode.FOCUS and work is Work.QUESTIONS:
            require_room(model.window, room.question, room.answer, options.page_tokens)
        if mode is Mode.EXACT:
            _say_room(watched.output, model.window - len(prompt.token_ids), room)
        if mode is Mode.FOCUS:
            model = calibrated(model, builder, options.ram_bytes, watched.output.status)
        watched.stop.defer()
        notes = _new_notes(options, paths, corpus, prompt, mode, model)
        most = len(prompt.token_ids) + room.total
        file = new_file(session, model, most, overwrite, stack, options.kv_codecs.disk)
        engine = make_engine(
            options, model, watched.telemetry, watched.output,
            file=file, stack=stack, num_tokens=most, mode=mode, work=work,
        )  # fmt: skip
        conversation = _new_conversation(engine, builder, prompt, watched.stop, mode)
        _set_choices(conversation, options)
        why = mode.why(len(prompt.token_ids), model.window, work)
        _say_plan(watched.output, engine, len(prompt.token_ids), session is not None, why)
        engine.commit(
            conversation.sequence, spans=prompt.source_map.to_json(), notes=notes.to_json()
        )
        if session is not None:
            remember_session(session)
        return Run(
            options, watched.output, watched.telemetry,
            dashboard=_show(options, watched, model, file, stack),
            stack=stack.pop_all(), stop=watched.stop, model=model, engine=engine,
            conversation=conversation, notes=notes, file=file,
            skipped=tuple(Skipped(skip.path, skip.reason.value) for skip in corpus.skipped),
            warnings=(*corpus.all_warnings(), *model.warnings), timings=Timings(load_s=load_s),
        )  # fmt: skip


def go_on(
    options: RunOptions,
    session: Path,
    *,
    work: Work = Work.QUESTIONS,
    loaded: tuple[LoadedModel, float] | None = None,
    beyond_window: bool = False,
) -> Run:
    """Open a run over a session file. Nothing is computed yet.

    Args:
        options: The shared options.
        session: The file.
        work: What will be done.
        loaded: Its model and the seconds that loading took, if that has been done.
        beyond_window: Go on with focus, from what was attended to exactly before.

    Raises:
        SessionError: The file cannot be used, or belongs to another model.
        KVError: The model or a budget will not do.
    """
    with ExitStack() as stack:
        watched = _watch(options, stack)
        file = SessionFile.open(session, writable=True)
        stack.callback(file.close)
        if file.recovered:
            watched.output.warn(f"{session}: {file.recovered}")
        notes = Notes.from_json(file.notes)
        notes.settings.require_same(session)
        source_map, history = SourceMap.from_json(file.spans).without_turns()
        options = same_pages(options, file)
        name = same_model(options, notes)
        model, load_s = loaded or load_chosen(options, watched.output, name)
        builder = PromptBuilder(model.tokenizer, model.name)
        watched.stop.defer()
        if beyond_window:
            notes = replace(notes, mode=Mode.FOCUS.value, exact_tokens=file.kv_tokens)
        mode = Mode(notes.mode)
        if notes.lookup_layers:
            model = replace(model, lookup_layers=notes.lookup_layers)
        most = max(model.window, len(file.token_ids))
        engine = make_engine(
            options, model, watched.telemetry, watched.output,
            file=file, stack=stack, num_tokens=most, mode=mode, work=work,
        )  # fmt: skip
        # In focus hardly any stored KV is; coded KV is not the same computed again.
        is_read = mode is Mode.EXACT and file.coded is None
        again = tokens_to_recompute(model, engine, file, watched.output) if is_read else 0
        sequence = engine.resume(recompute=again, on_step=lambda _: watched.stop.check())
        sequence.local_window = mode.local_window
        conversation = mode.conversation(
            engine, builder, sequence, source_map, notes.document_tokens,
            notes.turns, watched.stop.check, notes.neutral,
        )  # fmt: skip
        conversation.history = history
        _set_choices(conversation, options)
        why = mode.why(
            len(sequence.token_ids), model.window, work, is_outgrown=notes.exact_tokens > 0
        )
        _say_plan(watched.output, engine, len(sequence.token_ids), True, why)
        remember_session(session)
        return Run(
            options, watched.output, watched.telemetry,
            dashboard=_show(options, watched, model, file, stack),
            stack=stack.pop_all(), stop=watched.stop, model=model, engine=engine,
            conversation=conversation, notes=notes, file=file, is_resumed=True,
            reused_tokens=conversation.sequence.num_tokens - again, recomputed_tokens=again,
            warnings=(*((file.recovered,) if file.recovered else ()), *model.warnings),
            timings=Timings(load_s=load_s),
        )  # fmt: skip


def go_beyond(job: Run) -> Run:
    """Open the session of a run that has ended anew, with focus: its chat has outgrown the window.

    Raises:
        KVError: As `go_on`.
    """
    assert job.file is not None
    loaded = (job.model, job.timings.load_s or 0.0)
    return go_on(job.options, job.file.path, loaded=loaded, beyond_window=True)


def _watch(options: RunOptions, stack: ExitStack) -> _Watched:
    output, telemetry = Output(options), Telemetry()

    def on_request() -> None:
        output.status("stopping after this step; press Ctrl-C again to stop at once")

    stop = stack.enter_context(StopRequest(on_request))
    if options.metrics is not None:
        stack.enter_context(MetricsFile(options.metrics, telemetry, output))
    if options.prometheus is not None:
        stack.enter_context(PrometheusServer(options.prometheus, telemetry))
    return _Watched(output, telemetry, stop)


def _show(
    options: RunOptions,
    watched: _Watched,
    model: LoadedModel,
    file: SessionFile | None,
    stack: ExitStack,
) -> Dashboard:
    folder = file.path.resolve().parent if file is not None else cache_dir()
    view = Dashboard(watched.telemetry, options, watched.output, model.name, limits(folder))
    return stack.enter_context(view)


def _say_room(output: Output, left: int, room: Room) -> None:
    if room == UNKNOWN_TURN and left < COMFORT:
        output.warn(f"only {left:,} tokens of the window are left for questions and answers")


def _say_plan(output: Output, engine: Engine, num_tokens: int, has_session: bool, why: str) -> None:
    """Which mode and why, and where pages may lie."""
    plan, page = engine.memory_plan, engine.model.geometry.page_bytes
    output.status(f"{num_tokens:,} tokens, {why}")
    if engine.sketch_refusal is not None:
        output.status(engine.sketch_refusal)
    disk = "spill file" if plan.needs_disk else "session file" if has_session else "none"
    codec = engine.config.kv_codecs.disk
    if codec != "raw" and disk != "none":
        disk += f", pages coded as {codec}"
    output.detail(
        f"{engine.model.name} on {engine.model.device}, {engine.model.geometry.dtype}; room for "
        f"{plan.device_pages:,} pages in the device tier ({format_size(plan.device_pages * page)})"
        f", {plan.host_pages:,} in the host tier ({format_size(plan.host_pages * page)}), disk: "
        f"{disk}"
    )


# -- the conversation ------------------------------------------------------------------------------


def _new_notes(
    options: RunOptions,
    paths: Sequence[str],
    corpus: Corpus,
    prompt: Prompt,
    mode: Mode,
    model: LoadedModel,
) -> Notes:
    return Notes(
        model=lasting_name(options.model),
        sources=tuple(document.path for document in corpus.documents),
        mode=mode.value,
        turns=0,
        document_tokens=len(prompt.token_ids),
        neutral=None,
        lookup_layers=model.lookup_layers,
        settings=IngestSettings.of_now(),
        inputs=Inputs(
            os.getcwd(), tuple(paths), options.include, options.exclude, options.max_file_size
        ),
    )


def _set_choices(conversation: Conversation, options: RunOptions) -> None:
    """How pages are looked up and read, which the user may choose anew each time."""
    conversation.way = ProbeWay(options.lookup)
    if isinstance(conversation, FocusConversation) and options.attention in ("reread", "stored"):
        conversation.reading = Reading(options.attention)


def _new_conversation(
    engine: Engine, builder: PromptBuilder, prompt: Prompt, stop: StopRequest, mode: Mode
) -> Conversation:
    sequence = engine.new_sequence()
    sequence.token_ids.extend(prompt.token_ids)
    sequence.local_window = mode.local_window
    return mode.conversation(
        engine, builder, sequence, prompt.source_map, len(prompt.token_ids), 0, stop.check
    )
