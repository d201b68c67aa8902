"""One frozen file per format version still opens, and today's writer still writes that format."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import session_kit as kit

from engine.session import SessionFile, describe, verify

GOLDEN = Path(__file__).with_name("session_v1.kv")
FORK = Path(__file__).with_name("session_v2.kv")
CODED = Path(__file__).with_name("session_v3.kv")


def test_version_1_still_reads() -> None:
    with SessionFile.open(GOLDEN, writable=False) as file:
        assert file.identity == kit.IDENTITY
        assert file.geometry == kit.SMALL
        assert file.uuid == "6b7663696c6947318000000000000001"
        assert (file.generation, file.kv_tokens, file.tail_tokens, file.recovered) == (3, 23, 3, "")
        assert file.token_ids.tolist() == list(range(30))
        assert file.spans == [{"path": "a.txt", "end": 30}, {"path": "b.txt", "end": 30}]
        assert file.notes == {"state": "interrupted", "title": "Überblick"}
        for page in range(5):
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page))
        assert np.array_equal(kit.read_tail(file), kit.page(kit.SMALL, 5, 3))
    assert verify(GOLDEN, lambda done, total: None).faults == ()
    assert describe(GOLDEN).segments == 2


def test_version_2_still_reads() -> None:
    with SessionFile.open(FORK, writable=False) as file:
        assert (file.identity, file.geometry) == (kit.IDENTITY, kit.SMALL)
        assert file.uuid == "6b7663696c6947328000000000000002"
        assert (file.generation, file.kv_tokens, file.tail_tokens, file.recovered) == (2, 21, 1, "")
        assert file.token_ids.tolist() == list(range(33))
        assert file.spans == [{"path": "a.txt", "end": 30}, {"path": "b.txt", "end": 30}]
        assert file.notes == {"state": "forked"}
        for page in range(5):
            salt = 2 if page == 4 else 0
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page, salt))
        assert np.array_equal(kit.read_tail(file), kit.page(kit.SMALL, 5, 1))
    assert verify(FORK, lambda done, total: None).faults == ()
    assert describe(FORK).base == GOLDEN.resolve()


def test_version_3_still_reads() -> None:
    with SessionFile.open(CODED, writable=False) as file:
        assert (file.identity, file.geometry) == (kit.CODED_IDENTITY, kit.SMALL)
        assert (file.uuid, file.coded) == ("6b7663696c6947338000000000000003", kit.CODED)
        assert (file.generation, file.kv_tokens, file.tail_tokens, file.recovered) == (1, 37, 1, "")
        assert file.token_ids.tolist() == list(range(40))
        assert file.notes == {"state": "coded"}
        for page in range(9):
            assert np.array_equal(kit.read_page(file, page), kit.stored(file, page))
        assert np.array_equal(kit.read_tail(file), kit.page(kit.SMALL, 9, 1))
    assert verify(CODED, lambda done, total: None).faults == ()


def test_todays_writer_writes_all_versions_byte_for_byte(tmp_path: Path) -> None:
    """A change of the bytes is a change of the format: it needs a new version and a new file."""
    spec = importlib.util.spec_from_file_location(
        "make_golden", Path(__file__).with_name("make_golden.py")
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    base, fork, coded = (tmp_path / path.name for path in (GOLDEN, FORK, CODED))
    module.make(base)
    module.make_fork(base, fork)
    assert base.read_bytes() == GOLDEN.read_bytes()
    assert fork.read_bytes() == FORK.read_bytes()
    module.make_coded(coded)
    assert coded.read_bytes() == CODED.read_bytes()
