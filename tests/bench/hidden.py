"""How many facts hidden in a long real text are found, and how many absent ones are not made up.

A text of `--tokens` tokens of the default tokenizer, or a PDF with the facts stamped at the foot of
its pages (`--source pdf`), is read once by the command line, with focus; then every question is
asked in this process, by itself, of the same session, which is left as it was. Each row is a plain
count over the questions of one kind (`tests.bench.haystack` says what the kinds are); nothing is
asked twice and every question that was asked counts:

- first: the citation named first holds a fact's line;
- cited: some citation does; all cited: together they hold every line that is needed;
- right: the answer has every value asked for, whatever else it says; of `absent`, that nothing was
  found was said;
- trap: it has the value of another fact of the same form; it may count as right as well;
- not found: that nothing was found was said.

A citation is a run of lines, so a place is right to within some 60 lines; or the page of a PDF.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.config import SamplingConfig
from kvcli import opening
from kvcli.answer import Answer
from kvcli.conversation import Conversation
from kvcli.corpus.corpus import read_corpus
from kvcli.focus import FocusConversation
from kvcli.mode import Mode
from kvcli.models import resolve
from kvcli.options import RunOptions
from kvcli.sizes import parse_size
from tests.bench.harness import ROOT, report
from tests.bench.haystack import Place, Question, hide
from tests.bench.stamp import stamp

DEFAULT_MODEL = "smollm2-135m"
PROSE = (Path("/usr/share/R/doc/manual/fullrefman.pdf"), Path("/usr/share/doc/octave/octave.pdf"))
LEADERS = re.compile(r"(\. ?){4}")
LONGEST_LINE = 400
"""Source files with a longer line are hardly written by hand."""


def prose_lines(pdfs: list[Path]) -> Iterator[str]:
    """The lines of PDFs, a blank line between pages, tables of contents left out."""
    for pdf in pdfs:
        for span in read_corpus([pdf]).documents[0].spans:
            lines = span.text.splitlines()
            if 2 * sum(bool(LEADERS.search(line)) for line in lines) < len(lines):
                yield from lines
                yield ""


def code_lines(folder: Path, seed: int) -> Iterator[str]:
    """The lines of a folder's Python files in an order by seed, each under its name.

    Raises:
        ValueError: There is no Python file in it.
    """
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise ValueError(f"no Python file in {folder}")
    random.Random(seed).shuffle(files)
    for file in files:
        lines = file.read_text("utf-8", errors="replace").splitlines()
        if lines and max(map(len, lines)) <= LONGEST_LINE:
            yield from (f"# {file.relative_to(folder)}", *lines, "")


def token_counter() -> Callable[[str], int]:
    """Counts a text's tokens with the default model's tokenizer."""
    tokenizer = Tokenizer.from_file(str(Path(resolve(DEFAULT_MODEL)) / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def prepare(options: argparse.Namespace) -> tuple[Path, list[Question]]:
    """The session and its questions: what an earlier run left in the folder, or new ones."""
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    model = re.sub(r"\W+", "-", options.model)
    size = "pages.pdf" if options.source == "pdf" else f"{options.tokens}.txt"
    text = folder / f"{options.source}-{options.seed}-{size}"
    key, session = text.with_suffix(".json"), folder / f"{text.stem}-{model}.kv"
    if not (text.exists() and key.exists()):
        questions = write_text(options, text)
        session.unlink(missing_ok=True)  # it may hold another text
        key.write_text(json.dumps([asdict(q) for q in questions], indent=1), "utf-8")
    if not session.exists() and not options.prepare:
        command = [sys.executable, "-m", "kvcli.app", "ingest", str(text), "-o", str(session)]
        choices = ["--attention", "focus", "--model", options.model, "--dashboard", "line"]
        subprocess.run([*command, *choices], cwd=ROOT, check=True)
    return session, [_question(fields) for fields in json.loads(key.read_text("utf-8"))]


def write_text(options: argparse.Namespace, target: Path) -> list[Question]:
    """Hide facts in the sources that were chosen."""
    pdfs = options.pdf or list(PROSE)
    if options.source == "pdf":
        return stamp(pdfs[0], target, options.seed, singles=10, groups=5)
    is_code = options.source == "code"
    haystack = hide(
        code_lines(options.code, options.seed) if is_code else prose_lines(pdfs),
        options.seed, tokens=options.tokens, count_tokens=token_counter(),
        mark="# " if is_code else "",
    )  # fmt: skip
    target.write_text("\n".join(haystack.lines) + "\n", "utf-8")
    return list(haystack.questions)


def _question(fields: dict[str, Any]) -> Question:
    """The inverse of `asdict`."""
    places = tuple(Place(**place) for place in fields.pop("places"))
    text, kind = fields.pop("text"), fields.pop("kind")
    return Question(kind, text, places=places, **{k: tuple(v) for k, v in fields.items()})


def choose(questions: list[Question], most: int) -> list[Question]:
    """At most `most` questions of each kind, evenly out of all, so that depths stay spread."""
    chosen = []
    for kind in dict.fromkeys(question.kind for question in questions):
        of_kind = [question for question in questions if question.kind == kind]
        count = min(most, len(of_kind))
        chosen += [of_kind[(2 * at + 1) * len(of_kind) // (2 * count)] for at in range(count)]
    return chosen


def judge(question: Question, answer: Answer) -> dict[str, float]:
    """Every figure of one answer; places are not counted where there is none."""
    cited = [c.lines or (c.page or 0, c.page or 0) for c in answer.citations]
    is_found = answer.is_found
    figures = {
        "right": question.is_answered(answer.text) if question.accept else not is_found,
        "trap": question.is_trapped(answer.text),
        "not found": not is_found,
        "first token s": answer.first_token_s,
    }
    if question.places:
        found = question.places_in(cited)
        figures["first"] = bool(question.places_in(cited[:1]))
        figures["cited"] = bool(found)
        figures["all cited"] = len(found) == len(question.places)
    return {name: float(value) for name, value in figures.items()}


def tell(question: Question, answer: Answer, figures: dict[str, float]) -> None:
    """Print one question's line, and where its citations point."""
    marks = [name for name in ("first", "cited", "right", "trap", "not found") if figures.get(name)]
    print(f"{question.kind}: {', '.join(marks) or 'nothing'} | {question.text} | "
          f"{' '.join(question.facts)} | {answer.text[:90]!r}")  # fmt: skip
    places = [f"{place.at} (token {place.token:,})" for place in question.places]
    cited = [f"{c.lines or c.page} {c.weight:.2f}" for c in answer.citations]
    evidence = answer.lookup and f"{answer.lookup.evidence:.1f} {answer.lookup.coverage:.2f}"
    print(f"      at {', '.join(places) or 'none'}; cited {', '.join(cited)}; evidence {evidence}",
          flush=True)  # fmt: skip


def ask_afresh(conversation: Conversation, question: str, sampling: SamplingConfig) -> Answer:
    """Ask on a fork that is dropped, so that no question follows on from another."""
    if isinstance(conversation, FocusConversation):
        conversation.words.index()  # once, not once a fork
    fork = conversation.engine.fork(conversation.sequence)
    try:
        return replace(conversation, sequence=fork).ask(question, sampling, lambda _: None)
    finally:
        conversation.engine.drop(fork)


def ask_all(options: argparse.Namespace) -> None:
    """Ask what was chosen and print the table."""
    session, questions = prepare(options)
    if options.prepare:
        print(f"{len(questions)} questions; kvcli ingest ... -o {session}")
        return
    told: dict[str, list[dict[str, float]]] = {}
    run_options = RunOptions(
        max_tokens=options.max_tokens, ram=options.ram, lookup=options.lookup,
        dashboard="off", quiet=True,
    )  # fmt: skip
    with opening.go_on(run_options, session) as run:
        assert run.notes.mode == Mode.FOCUS.value
        run.read()
        num_tokens = len(run.conversation.sequence.token_ids)
        for question in choose(questions, options.questions):
            answer = ask_afresh(run.conversation, question.text, run_options.sampling)
            figures = judge(question, answer)
            tell(question, answer, figures)
            told.setdefault(question.kind, []).append(figures)
    counts = ("first", "cited", "all cited", "right", "trap", "not found")
    rows = {}
    for kind, seen in told.items():
        rows[kind] = {"asked": float(len(seen))}
        rows[kind] |= {name: sum(f[name] for f in seen) for name in counts if name in seen[0]}
        rows[kind]["first token s"] = statistics.median(f["first token s"] for f in seen)
    report(
        f"facts hidden in {num_tokens:,} tokens of {options.source}", rows,
        model=options.model, seed=options.seed, max_tokens=options.max_tokens,
    )  # fmt: skip


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=65_536, help="most tokens of the text")
    parser.add_argument("--source", choices=("prose", "code", "pdf"), default="prose")
    parser.add_argument("--pdf", type=Path, action="append", help="prose; repeatable but for pdf")
    parser.add_argument("--code", type=Path, help="folder of Python files, for --source code")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder",
        type=Path,
        required=True,
        help="keeps text, key and session; one folder for each set of sources",
    )
    parser.add_argument("--questions", type=int, default=10, help="most of each kind")
    parser.add_argument("--prepare", action="store_true", help="write text and key, then stop")
    parser.add_argument("--ram", type=parse_size, help="budget while asking; as kvcli takes it")
    parser.add_argument("--lookup", default="auto", help="auto, scan or sketch")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--max-tokens", type=int, default=64, help="longest answer")
    options = parser.parse_args()
    if options.source == "code" and options.code is None:
        parser.error("--source code needs --code DIR")
    ask_all(options)


if __name__ == "__main__":
    main()
