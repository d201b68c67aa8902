"""Writes the files that every later kvcli must still read, `session_v1.kv`, a fork
of it and a coded one.

Run it only to add a file for a new format version: the old ones are frozen. They are made in a
folder of their own, for a fork names where its base is.

    python tests/golden/make_golden.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import session_kit as kit

from engine.session import SessionFile
from engine.session.lineage import BaseRef

UUID_V1 = UUID("6b766369-6c69-4731-8000-000000000001")
UUID_V3 = UUID("6b766369-6c69-4733-8000-000000000003")
UUID_V2 = UUID("6b766369-6c69-4732-8000-000000000002")


def make(path: Path) -> None:
    """Every kind of extent: two segments, both tail slots, spans and notes, ids without KV."""
    with (
        patch("engine.session.writer.uuid4", return_value=UUID_V1),
        SessionFile.create(path, kit.IDENTITY, kit.SMALL) as file,
    ):
        file.commit(token_ids=range(30), kv_tokens=0, spans=[{"path": "a.txt", "end": 30}])
        for page in range(4):
            kit.write_page(file, page)
        file.commit(kv_tokens=18, notes={"state": "half"}, tail=kit.page(kit.SMALL, 4, 2).data)
        kit.write_page(file, 4)
        file.commit(
            kv_tokens=23,
            spans=[{"path": "b.txt", "end": 30}],
            notes={"state": "interrupted", "title": "Überblick"},
            tail=kit.page(kit.SMALL, 5, 3).data,
        )


def make_fork(base: Path, path: Path) -> None:
    """A segment of the base, a page and a tail of its own; the base takes no note of it."""
    with SessionFile.open(base, writable=False) as file:
        found = file.as_base(path, num_segments=1)
    ref = BaseRef(found.uuid, found.generation, found.record, 1, f"/nowhere/{base.name}", base.name)
    with (
        patch("engine.session.writer.uuid4", return_value=UUID_V2),
        SessionFile.create(path, kit.IDENTITY, kit.SMALL, base=ref) as file,
    ):
        file.commit(kv_tokens=16)
        kit.write_page(file, 4, salt=2)
        file.commit(
            token_ids=range(30, 33), kv_tokens=21, notes={"state": "forked"},
            tail=kit.page(kit.SMALL, 5, 1).data,
        )  # fmt: skip


def make_coded(path: Path) -> None:
    """A raw segment, a coded one, a coded one that is not full, and a tail."""
    with (
        patch("engine.session.writer.uuid4", return_value=UUID_V3),
        kit.new(path, kit.SMALL, kit.CODED) as file,
    ):
        for page in range(9):
            kit.write_page(file, page)
        file.commit(token_ids=range(40), kv_tokens=37, notes={"state": "coded"},
                    tail=kit.page(kit.SMALL, 9, 1).data)  # fmt: skip


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    make(folder / "session_v1.kv")
    make_fork(folder / "session_v1.kv", folder / "session_v2.kv")
    make_coded(folder / "session_v3.kv")
