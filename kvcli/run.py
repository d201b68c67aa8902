"""One run of the main job: from paths or a session file to a conversation, watched and kept.

Owns the order of things: cheap checks before expensive ones, nothing computed before everything is
known to fit, everything closed whatever happens. Knows every part of kvcli by its front door only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.assembly import identity_of
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import OverBudget, PartialInput
from engine.model.load import LoadedModel, load_model
from engine.session import SessionFile
from engine.telemetry import Telemetry
from kvcli.conversation import Answer, Conversation
from kvcli.corpus.corpus import read_corpus
from kvcli.corpus.source_map import SourceMap
from kvcli.corpus.spans import Corpus, SkipReason
from kvcli.dashboard import Dashboard
from kvcli.fetch import cache_dir
from kvcli.metrics import MetricsFile
from kvcli.models import resolve
from kvcli.notes import Notes
from kvcli.options import RunOptions
from kvcli.output import Interrupted, Output
from kvcli.prompts import Prompt, PromptBuilder
from kvcli.results import RunResult, Skipped, Timings, Usage, io_of, tiers_of
from kvcli.stopping import StopRequest

QUESTION_TOKENS = 256
"""Room kept for a question when it is not known yet (ingest)."""


@dataclass(slots=True)
class Run:
    """An open run; a context manager. Make one by `start` or `go_on`."""

    options: RunOptions
    output: Output
    telemetry: Telemetry
    stack: ExitStack
    stop: StopRequest
    model: LoadedModel
    engine: Engine
    conversation: Conversation
    dashboard: Dashboard
    notes: Notes
    session: Path | None
    is_resumed: bool = False
    reused_tokens: int = 0
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()
    timings: Timings = field(default_factory=Timings)
    recomputed_tokens: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                raise self._interrupted() from None
        finally:
            self.stack.close()

    def read(self) -> None:
        """Read the documents, or finish reading them, and keep them."""
        started = time.monotonic()
        computed = self.conversation.read("reading")
        if self.is_resumed:
            self.recomputed_tokens = computed
        self.timings = replace(self.timings, ingest_s=round(time.monotonic() - started, 3))
        if computed or self.notes.neutral is None:
            self.save()

    def ask(self, question: str, *, is_request: bool = False) -> Answer:
        """Ask, stream the answer to stdout, keep the turn."""
        with self.dashboard.pause():
            answer = self.conversation.ask(
                question, self.options.sampling, self.output.answer_token, is_request=is_request
            )
            self.output.end_answer()
        self.save()
        self.timings = replace(
            self.timings,
            first_token_s=round(answer.first_token_s, 3),
            decode_s=round(answer.decode_s, 3),
        )
        return answer

    def save(self) -> None:
        """Commit the conversation, if there is a file."""
        if self.session is None:
            return
        self.notes = replace(
            self.notes, turns=self.conversation.turns, neutral=self.conversation.neutral
        )
        self.conversation.save(self.notes.to_json())

    def tell(self, answer: Answer | None) -> None:
        """Print the citations, or everything as JSON."""
        if answer is not None:
            self.output.citations(answer.citations)
        if self.options.json:
            self.output.json(self.result(answer).to_json())

    def result(self, answer: Answer | None) -> RunResult:
        """Everything this run has to tell."""
        sample = self.telemetry.sample()
        new = answer.new_tokens if answer else 0
        return RunResult(
            answer=answer.text if answer else None,
            citations=answer.citations if answer else (),
            model=self.model.name,
            mode=self.notes.mode,
            usage=Usage(
                prompt_tokens=len(self.conversation.sequence.token_ids) - new,
                reused_tokens=self.reused_tokens,
                recomputed_tokens=self.recomputed_tokens,
                new_tokens=new,
            ),
            tiers=tiers_of(sample),
            io=io_of(sample),
            timings=self.timings,
            session=str(self.session) if self.session else None,
            skipped=self.skipped,
            warnings=self.warnings,
        )

    def _interrupted(self) -> Interrupted:
        """Commit what the last whole step left, and say so."""
        sequence = self.conversation.sequence
        if self.session is None:
            return Interrupted("interrupted; nothing was kept", "Name a --session to keep work.")
        self.engine.commit(sequence, notes=self.notes.to_json())
        return Interrupted(
            f"interrupted; {sequence.num_tokens:,} of {len(sequence.token_ids):,} tokens are kept "
            f"in {self.session}",
            f"Go on with: kvcli resume {self.session}",
        )


def start(
    options: RunOptions,
    paths: Sequence[str],
    *,
    question: str | None,
    session: Path | None,
    overwrite: bool = False,
) -> Run:
    """Open a run over documents. Nothing is computed yet.

    Raises:
        KVError: The inputs, the model, a budget or the session file will not do.
    """
    output, telemetry = Output(options), Telemetry()
    with ExitStack() as stack:
        _open_metrics(options, telemetry, output, stack)
        corpus = _read(options, paths, output)
        model, load_s = _load(options, output, options.model)
        builder = PromptBuilder(model.tokenizer)
        prompt = builder.documents(corpus)
        room = len(builder.first_question(question)) if question else QUESTION_TOKENS
        require_window(corpus, prompt, room + options.max_tokens, model.window)
        file = None
        if session is not None:
            file = SessionFile.create(
                session, identity_of(model), model.geometry, overwrite=overwrite
            )
            stack.callback(file.close)
            file.free_space_check(
                model.geometry.num_segments(len(prompt.token_ids) + room)
                * model.geometry.segment_bytes
            )
        engine = _engine(options, model, telemetry, file, stack)
        sequence = engine.new_sequence()
        sequence.token_ids.extend(prompt.token_ids)
        notes = Notes(
            model=options.model,
            sources=tuple(document.path for document in corpus.documents),
            mode="exact",
            turns=0,
            document_tokens=len(prompt.token_ids),
            neutral=None,
        )
        engine.commit(sequence, spans=prompt.source_map.to_json(), notes=notes.to_json())
        stop = _listen(output, stack)
        conversation = Conversation(engine, builder, sequence, prompt.source_map, 0, stop.check)
        return Run(
            options, output, telemetry,
            dashboard=_watch(options, telemetry, output, model, stack),
            stack=stack.pop_all(), stop=stop, model=model, engine=engine,
            conversation=conversation, notes=notes, session=session,
            skipped=tuple(Skipped(skip.path, skip.reason.value) for skip in corpus.skipped),
            warnings=(*corpus.all_warnings(), *model.warnings), timings=Timings(load_s=load_s),
        )  # fmt: skip


def go_on(options: RunOptions, session: Path) -> Run:
    """Open a run over a session file. Nothing is computed yet.

    Raises:
        SessionError: The file cannot be used, or belongs to another model.
        KVError: The model or a budget will not do.
    """
    output, telemetry = Output(options), Telemetry()
    with ExitStack() as stack:
        _open_metrics(options, telemetry, output, stack)
        file = SessionFile.open(session, writable=True)
        stack.callback(file.close)
        if file.recovered:
            output.warn(f"{session}: {file.recovered}")
        notes = Notes.from_json(file.notes)
        options = replace(options, page_tokens=file.geometry.page_tokens)
        model, load_s = _load(options, output, _same_model(options, notes))
        engine = _engine(options, model, telemetry, file, stack)
        sequence = engine.resume()
        stop = _listen(output, stack)
        conversation = Conversation(
            engine, PromptBuilder(model.tokenizer), sequence, SourceMap.from_json(file.spans),
            notes.turns, stop.check, notes.neutral,
        )  # fmt: skip
        return Run(
            options, output, telemetry,
            dashboard=_watch(options, telemetry, output, model, stack),
            stack=stack.pop_all(), stop=stop, model=model, engine=engine,
            conversation=conversation, notes=notes, session=session, is_resumed=True,
            reused_tokens=sequence.num_tokens,
            warnings=(*((file.recovered,) if file.recovered else ()), *model.warnings),
            timings=Timings(load_s=load_s),
        )  # fmt: skip


def require_window(corpus: Corpus, prompt: Prompt, more: int, window: int) -> None:
    """Refuse documents that do not fit, with both numbers and the largest of them.

    Raises:
        OverBudget: Documents, question and answer outgrow the window.
    """
    need = len(prompt.token_ids) + more
    if need <= window:
        return
    sizes: dict[str, int] = {}
    for span in prompt.source_map.spans:
        sizes[span.path] = sizes.get(span.path, 0) + span.num_tokens
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(f"{path} {tokens:,}" for path, tokens in largest)
    raise OverBudget(
        f"{len(prompt.token_ids):,} tokens of documents and {more:,} for question and answer are "
        f"{need:,}: more than the model's window of {window:,} (largest: {named})",
        "Name fewer files, use --include or --exclude, or a --model with a longer window; "
        "`kvcli inspect` shows the tokens of every file.",
    )


def _read(options: RunOptions, paths: Sequence[str], output: Output) -> Corpus:
    corpus = read_corpus(
        paths,
        password=options.password,
        max_file_bytes=options.max_file_size,
        include=options.include,
        exclude=options.exclude,
    )
    for warning in corpus.all_warnings():
        output.warn(warning)
    skipped = [skip for skip in corpus.skipped if skip.reason is not SkipReason.EMPTY]
    if skipped:
        named = ", ".join(f"{skip.path} ({skip.reason.value})" for skip in skipped[:5])
        more = f" and {len(skipped) - 5} more" if len(skipped) > 5 else ""
        if options.strict:
            raise PartialInput(
                f"{len(skipped)} inputs would be skipped: {named}{more}",
                "Exclude them, or leave --strict out.",
            )
        output.warn(f"skipped {len(skipped)}: {named}{more}")
    return corpus


def _same_model(options: RunOptions, notes: Notes) -> str:
    """The session's own model, unless another one was asked for."""
    return notes.model if options.model == RunOptions().model else options.model


def _load(options: RunOptions, output: Output, name: str) -> tuple[LoadedModel, float]:
    started = time.monotonic()
    source = resolve(name, offline=options.offline, on_status=output.status)
    model = load_model(
        Path(source) if Path(source).exists() else source,
        device=options.device,
        offline=options.offline,
        page_tokens=options.page_tokens,
    )
    if options.window is not None:
        model = replace(model, window=min(model.window, options.window))
    for warning in model.warnings:
        output.detail(warning)
    return model, round(time.monotonic() - started, 3)


def _engine(
    options: RunOptions,
    model: LoadedModel,
    telemetry: Telemetry,
    file: SessionFile | None,
    stack: ExitStack,
) -> Engine:
    spill = cache_dir() / "spill"
    spill.mkdir(parents=True, exist_ok=True)
    config = EngineConfig(
        ram_bytes=options.ram_bytes,
        device_bytes=options.vram,
        evict=options.evict,
        spill_folder=spill,
    )
    engine = Engine(model, config, telemetry, num_tokens=model.window, file=file)
    stack.callback(engine.close)
    return engine


def _new_file(path: Path, model: LoadedModel, num_tokens: int, overwrite: bool) -> SessionFile:
    geometry = model.geometry
    file = SessionFile.create(path, identity_of(model), geometry, overwrite=overwrite)
    try:
        file.free_space_check(geometry.num_segments(num_tokens) * geometry.segment_bytes)
    except BaseException:
        file.close()
        raise
    return file


def _open_metrics(
    options: RunOptions, telemetry: Telemetry, output: Output, stack: ExitStack
) -> None:
    if options.metrics is not None:
        stack.enter_context(MetricsFile(options.metrics, telemetry, output))


def _listen(output: Output, stack: ExitStack) -> StopRequest:
    def on_request() -> None:
        output.status("stopping after this step; press Ctrl-C again to stop at once")

    return stack.enter_context(StopRequest(on_request))


def _watch(
    options: RunOptions, telemetry: Telemetry, output: Output, model: LoadedModel, stack: ExitStack
) -> Dashboard:
    return stack.enter_context(Dashboard(telemetry, options, output, model.name))
