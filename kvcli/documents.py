"""The documents of a run: read, with every skip said, and known to fit before anything is computed.

Owns what is refused about inputs and session names before a model is loaded, and the check against
the window after. Knows how to read documents only by `read_corpus`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError, OverBudget, PartialInput, StorageError
from kvcli.corpus.corpus import read_corpus
from kvcli.corpus.spans import Corpus, Skip, SkipReason
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.prompts import Prompt
from kvcli.reading_progress import ReadingProgress

NAMED = 5
"""How many skips or warnings are named before the rest is counted; --verbose names all."""


def require_new_session(path: Path, *, overwrite: bool) -> None:
    """Refuse the name of a session that cannot be made, before any work is done for it.

    Raises:
        ConfigError: A folder, or a file that may not be replaced.
        StorageError: Its folder is missing or read-only.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder", "Name a session file, such as notes.kv.")
    if path.exists() and not overwrite:
        raise ConfigError(
            f"{path}: already exists",
            "Choose another name, go on with it by `kvcli resume`, or replace it by "
            "`kvcli ingest --force`.",
        )
    if not path.parent.is_dir():
        raise StorageError(
            f"{path.parent}: no such folder", "Create the folder, or choose another one."
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StorageError(f"{path.parent}: not writable", "Choose a folder that you may write to.")


def read_documents(options: RunOptions, paths: Sequence[str], output: Output) -> Corpus:
    """Read files, folders and standard input, and say what was left out.

    Raises:
        ConfigError: A path does not exist.
        NothingReadable: Nothing was left to read.
        PartialInput: Something was skipped and --strict was given.
    """
    if "-" in paths:
        if sys.stdin is None:
            raise ConfigError("standard input is closed", "Give a file instead of -.")
        if sys.stdin.isatty():
            output.status("reading standard input; end it with Ctrl-D")
    corpus = read_with_progress(options, paths, output)
    _say_warnings(corpus.all_warnings(), options, output)
    _say_skips(corpus.skipped, paths, options, output)
    return corpus


def read_with_progress(options: RunOptions, paths: Sequence[str], output: Output) -> Corpus:
    """Read files, folders and standard input, and say how far it is once it takes a while.

    Raises:
        ConfigError: A path does not exist.
        NothingReadable: Nothing was left to read.
    """
    with ReadingProgress(options, output) as progress:
        return read_corpus(
            paths,
            password=options.password,
            max_file_bytes=options.max_file_size,
            include=options.include,
            exclude=options.exclude,
            on_progress=progress.update,
        )


def _say_warnings(warnings: Sequence[str], options: RunOptions, output: Output) -> None:
    shown = warnings if options.verbose else warnings[:NAMED]
    for warning in shown:
        output.warn(warning)
    if len(shown) < len(warnings):
        output.warn(f"{len(warnings) - len(shown)} more like these (--verbose names them)")


def losses(skipped: Sequence[Skip], paths: Sequence[str]) -> list[Skip]:
    """The skips that the user should hear of.

    An empty file of a repository is no loss; one that the user named is a surprise.
    """
    return [skip for skip in skipped if skip.reason is not SkipReason.EMPTY or skip.path in paths]


def _say_skips(
    skipped: Sequence[Skip], paths: Sequence[str], options: RunOptions, output: Output
) -> None:
    lost = losses(skipped, paths)
    if not lost:
        return
    shown = lost if options.verbose else lost[:NAMED]
    named = ", ".join(f"{skip.path} ({_why(skip, options)})" for skip in shown)
    more = f" and {len(lost) - len(shown)} more" if len(shown) < len(lost) else ""
    inputs = "1 input" if len(lost) == 1 else f"{len(lost)} inputs"
    if options.strict:
        raise PartialInput(
            f"{inputs} would be skipped: {named}{more}", "Exclude them, or leave --strict out."
        )
    output.warn(f"skipped {inputs}: {named}{more}")


def _why(skip: Skip, options: RunOptions) -> str:
    return f"{skip.reason.value}: {skip.detail}" if options.verbose else skip.reason.value


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens that must be left behind the documents."""

    question: int
    answer: int

    @property
    def total(self) -> int:
        """Of both."""
        return self.question + self.answer


UNKNOWN_TURN = Room(64, 64)
"""What a question yet to be asked and a short answer take at least."""

COMFORT = 512
"""Tokens left behind the documents below which an ingest warns."""


def require_window(prompt: Prompt, room: Room, window: int) -> None:
    """Refuse documents that do not fit, with both numbers and the largest of them.

    Raises:
        OverBudget: Documents, question and answer outgrow the window.
    """
    documents = len(prompt.token_ids)
    need = documents + room.total
    if need <= window:
        return
    sizes: dict[str, int] = {}
    for span in prompt.source_map.spans:
        sizes[span.path] = sizes.get(span.path, 0) + span.num_tokens
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(f"{path} {tokens:,}" for path, tokens in largest)
    fits_shorter = documents + room.question < window and room != UNKNOWN_TURN
    raise OverBudget(
        f"{documents:,} tokens of documents, {room.question:,} for the question and "
        f"{room.answer:,} for the answer are {need:,}: more than the window of {window:,} "
        f"(largest: {named})",
        "Ask for a shorter answer with --max-tokens, or give fewer documents."
        if fits_shorter
        else "Name fewer files, use --include or --exclude, or a --model with a longer window; "
        "`kvcli inspect` shows the tokens of every file.",
    )
