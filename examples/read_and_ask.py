"""Use the engine from Python: read a text once, keep it, ask twice.

Run: python examples/read_and_ask.py TEXT_FILE QUESTION [QUESTION]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from engine.assembly import identity_of
from engine.config import EngineConfig, SamplingConfig
from engine.engine import Engine
from engine.model.load import LoadedModel, load_model
from engine.session import SessionFile
from engine.telemetry import Telemetry
from kvcli.corpus.corpus import read_corpus
from kvcli.models import resolve
from kvcli.prompts import PromptBuilder

SMALL = EngineConfig(ram_bytes=256 << 20)
"""256 MiB for pages and buffers; what does not fit goes to the session file."""


def read(model: LoadedModel, ids: list[int], path: Path) -> None:
    """Compute the KV of a text and keep it in a session file."""
    file = SessionFile.create(path, identity_of(model), model.geometry)
    engine = Engine(model, SMALL, Telemetry(), num_tokens=model.window, file=file)
    sequence = engine.new_sequence()
    sequence.token_ids.extend(ids)
    engine.compute(sequence)
    engine.commit(sequence, notes={})
    engine.close()


def ask(model: LoadedModel, question: list[int], path: Path) -> str:
    """Answer from the session file, on a fork: the file stays as it is."""
    file = SessionFile.open(path, writable=False)
    engine = Engine(model, SMALL, Telemetry(), num_tokens=model.window, file=file)
    fork = engine.fork(engine.resume())
    fork.token_ids.extend(question)
    logits = engine.compute(fork)
    answer = list(engine.generate(fork, logits, SamplingConfig(max_tokens=40)))
    engine.close()
    return model.tokenizer.decode(answer)


def main(arguments: list[str]) -> None:
    """Read the file, then ask."""
    text, *questions = arguments
    model = load_model(Path(resolve("smollm2-135m")))
    builder = PromptBuilder(model.tokenizer, model.name)
    prompt = builder.documents(read_corpus([Path(text)]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.kv"
        read(model, prompt.token_ids, path)
        for question in questions:
            print(f"{question}\n  {ask(model, builder.first_question(question), path)}")


if __name__ == "__main__":
    main(sys.argv[1:])
