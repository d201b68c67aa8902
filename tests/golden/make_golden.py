"""Writes `session_v1.kv`, the file that every later kvcli must still read.

Run it only to add a file for a new format version: the old ones are frozen.

    python tests/golden/make_golden.py tests/golden/session_v1.kv
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import session_kit as kit

from engine.session import SessionFile

GOLDEN = Path(__file__).with_name("session_v1.kv")
UUID_V1 = UUID("6b766369-6c69-4731-8000-000000000001")


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


if __name__ == "__main__":
    make(Path(sys.argv[1]))
