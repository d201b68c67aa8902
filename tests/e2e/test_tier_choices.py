"""Every policy, prefetch, pager and budget gives the same tokens.

One session of 400 tokens is resumed with each combination, asked, and compared with an engine that
holds everything in its device tier.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from engine_kit import (
    LEAST_HOST,
    RESIDENT,
    SMALLEST,
    Budget,
    Heard,
    listen,
    one_thread,
    open_engine,
    saved,
    text,
    tiny,
)

from engine.policies import POLICIES
from engine.policies.prefetch import PREFETCH_POLICIES
from engine.session import SessionFile
from engine.types import Tier

__all__ = ["one_thread"]
DOCUMENT = 400
BUDGETS = {
    "resident": RESIDENT,
    "half": Budget(device=6, host=LEAST_HOST + 6),
    "one page": SMALLEST,
}
PREFETCH = [(), *((name,) for name in PREFETCH_POLICIES), tuple(PREFETCH_POLICIES)]


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("pager", ["explicit", "unified"])
def test_every_choice_gives_the_same_tokens(pager: str, budget: Budget, tmp_path: Path) -> None:
    model = tiny("llama", "bfloat16")
    saved(tmp_path / "s.kv", DOCUMENT)
    heard: dict[str, Heard] = {}
    served = dict.fromkeys(Tier, 0)
    for evict, prefetch in itertools.product(POLICIES, PREFETCH):
        path = tmp_path / "copy.kv"
        shutil.copyfile(tmp_path / "s.kv", path)
        file = SessionFile.open(path, writable=True)
        settings = {"evict": evict, "prefetch": prefetch, "pager": pager}
        with open_engine(model, budget, file=file, **settings) as engine:
            sequence = engine.resume()
            gathered = engine.gather(sequence, [0, 1, 9, 10, 3])
            said = listen(engine, gathered, text(9, 3), 1)
            engine.drop(gathered)
            engine.expect(sequence, [12, 4, 9])
            then = listen(engine, sequence, text(20, 2), 3)
            for tier, pages in engine.telemetry.sample().hits.items():
                served[tier] += pages
        heard[f"{evict} {prefetch}"] = Heard(said.logits + then.logits, said.tokens + then.tokens)
    with open_engine(model) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(DOCUMENT), 0)
        then = listen(engine, sequence, text(20, 2), 3)
        gathered = engine.gather(sequence, [0, 1, 9, 10, 3])
        said = listen(engine, gathered, text(9, 3), 1)
    expected = Heard(said.logits + then.logits, said.tokens + then.tokens)
    assert len(heard) == len(POLICIES) * len(PREFETCH)
    assert [name for name, one in heard.items() if not one.same_bits(expected)] == []
    assert served[Tier.DISK] > 0, "else nothing was chosen"
