"""PDFs: pages, labels, passwords, scans, damage; and a reader process that may do anything."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pypdf
import pytest
from corpus_kit import IMAGE, encrypted, labelled, pdf_bytes, write_pdf
from reportlab.pdfgen import canvas

import kvcli
from kvcli.corpus.pdf import PdfRefused, PdfText, read_pdf
from kvcli.corpus.pdf_process import PdfRequest, WorkerLimits, extract
from kvcli.corpus.spans import SkipReason


def read(path: Path, password: str | None = None) -> PdfText:
    found = read_pdf(str(path), password)
    assert isinstance(found, PdfText), found
    return found


def refused(path: Path, password: str | None = None) -> PdfRefused:
    found = read_pdf(str(path), password)
    assert isinstance(found, PdfRefused), found
    return found


def test_one_span_a_page_and_blank_pages_keep_the_numbers(tmp_path: Path) -> None:
    found = read(write_pdf(tmp_path / "a.pdf", ["first\npage", "", "third"]))
    assert [(span.page, span.text) for span in found.spans] == [
        (1, "first\npage\n"),
        (3, "third\n"),
    ]
    assert found.warnings == ()


def test_an_endless_label_is_cut(tmp_path: Path) -> None:
    """A label of a megabyte would stand in each citation of its page."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_bytes(["a"])))
    writer.set_page_label(0, 0, prefix="x" * 5000)
    writer.write(tmp_path / "a.pdf")
    assert [span.label for span in read(tmp_path / "a.pdf").spans] == ["x" * 40]


def test_labels_are_given_where_they_differ_from_the_physical_page(tmp_path: Path) -> None:
    found = read(labelled(tmp_path / "a.pdf", ["a", "b", "c", "d"], roman=2))
    assert [span.label for span in found.spans] == ["i", "ii", "1", "2"]
    plain = read(write_pdf(tmp_path / "b.pdf", ["a", "b"]))
    assert [span.label for span in plain.spans] == [None, None]


def test_broken_words_are_joined_or_keep_their_hyphen_by_evidence(tmp_path: Path) -> None:
    pages = [
        "the infor-\nmation is here\na well-\nknown fact\nan unheard-\nof thing\nsee pre-\nFrench",
        "more information, well and known",
    ]
    text = read(write_pdf(tmp_path / "a.pdf", pages)).spans[0].text
    assert "the information is" in text
    assert "a well-known fact" in text
    assert "an unheardof thing" in text
    assert "pre-French" in text


def test_image_pages_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    found = read(write_pdf(tmp_path / "a.pdf", ["text", IMAGE, IMAGE, "more"]))
    assert [span.page for span in found.spans] == [1, 4]
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("pages 2-3 without text")
    assert "ocrmypdf" in found.warnings[0]


def test_a_scan_is_refused_as_one(tmp_path: Path) -> None:
    found = refused(write_pdf(tmp_path / "a.pdf", [IMAGE] * 3))
    assert found == PdfRefused(SkipReason.SCANNED, "all 3 pages are images without text")


def test_blank_pages_alone_are_empty_not_scanned(tmp_path: Path) -> None:
    assert refused(write_pdf(tmp_path / "a.pdf", ["", ""])).reason is SkipReason.EMPTY


def test_an_empty_user_password_opens_silently(tmp_path: Path) -> None:
    found = read(encrypted(tmp_path / "a.pdf", ["secret text"], user_password=""))
    assert found.spans[0].text == "secret text\n"
    assert found.warnings == ()


def test_a_real_password_is_needed_and_works(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a.pdf", ["secret text"], user_password="sesame")
    assert refused(path) == PdfRefused(SkipReason.ENCRYPTED, "it needs a password")
    assert refused(path, "wrong").detail == "the password does not open it"
    assert read(path, "sesame").spans[0].text == "secret text\n"


def test_form_values_appear_exactly_once(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    sheet = canvas.Canvas(buffer)
    sheet.drawString(72, 720, "Applicant below")
    sheet.acroForm.textfield(name="who", tooltip="Name", value="Ada Lovelace", x=72, y=650)
    sheet.showPage()
    sheet.save()
    path = tmp_path / "form.pdf"
    path.write_bytes(buffer.getvalue())
    assert read(path).spans[0].text == "Applicant below\nName: Ada Lovelace\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"%PDF-1.7\n" + bytes(500),
        lambda data: b"%PDF-1.4\n%%EOF\n",
    ],
    ids=["cut in half", "zeros", "nothing inside"],
)
def test_damage_is_a_refusal(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    path = tmp_path / "a.pdf"
    path.write_bytes(damage(pdf_bytes(["some text"] * 3)))
    assert refused(path).reason in (SkipReason.DAMAGED, SkipReason.EMPTY)


def test_a_lost_cross_reference_table_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    data = pdf_bytes(["one", "two"])
    path.write_bytes(data[: data.rindex(b"xref\n0")] + data[data.rindex(b"trailer") :])
    assert [span.text for span in read(path).spans] == ["one\n", "two\n"]


def test_a_page_tree_that_loops_ends(tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_bytes(["one", "two"])))
    tree = writer._pages.get_object()  # no public way makes a loop
    assert isinstance(tree, pypdf.generic.DictionaryObject)
    kids = tree["/Kids"]
    assert isinstance(kids, pypdf.generic.ArrayObject)
    kids.append(writer._pages)
    path = tmp_path / "loop.pdf"
    writer.write(path)
    found = read_pdf(str(path))
    assert isinstance(found, PdfRefused) or [span.text for span in found.spans][:1] == ["one\n"]


FAKE_WORKER = """
import json, os, sys, time
order = json.loads(sys.stdin.readline())
def say(**message): print(json.dumps(message), flush=True)
say(num_pages=4)
for page in order["only"] if order["only"] is not None else range(order["first"], 4):
    if page in {bad!r}:
        {deed}
    say(page=page, text=f"page {{page}}", label="", images=0)
say(done=True)
"""


def fake_worker(
    monkeypatch: pytest.MonkeyPatch, folder: Path, deed: str, bad: Sequence[int] = (1,)
) -> None:
    """Put another program in the worker's place that does `deed` on reaching some pages."""
    package = folder / "fake" / "kvcli" / "corpus"
    package.mkdir(parents=True)
    for at in (package, package.parent):
        (at / "__init__.py").write_text("")
    (package / "pdf_worker.py").write_text(FAKE_WORKER.format(deed=deed, bad=tuple(bad)))
    monkeypatch.setattr(kvcli, "__file__", str(package.parent / "__init__.py"))


QUICK = WorkerLimits(silence_seconds=2.0)


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("os.abort()", "signal 6"),
        ("time.sleep(60)", "too long"),
        ("sys.exit(1)", "crashed"),
        ("os.write(1, b'garbage\\n')", "crashed"),
    ],
)
def test_a_page_that_kills_or_hangs_the_worker_is_lost_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, told: str
) -> None:
    fake_worker(monkeypatch, tmp_path, deed)
    out = extract(PdfRequest("x.pdf"), QUICK)
    assert sorted(out.pages) == [0, 2, 3]
    assert list(out.lost) == [1]
    assert told in out.lost[1]


def test_after_a_few_restarts_the_rest_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_worker(monkeypatch, tmp_path, "os.abort()", bad=(1, 2))
    out = extract(PdfRequest("x.pdf"), WorkerLimits(max_restarts=1))
    assert sorted(out.pages) == [0]
    assert sorted(out.lost) == [1, 2, 3]


def test_too_much_text_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_worker(monkeypatch, tmp_path, "pass")
    out = extract(PdfRequest("x.pdf"), WorkerLimits(max_chars=10))
    assert sorted(out.lost) == [2, 3]


def test_pages_that_a_file_only_claims_to_have_are_not_tried_one_by_one(tmp_path: Path) -> None:
    """Its limit grows with its pages, and so would the time spent on those that are not there."""
    data = pdf_bytes(["one", "two"]).replace(b"/Count 2", b"/Count 900000")
    path = tmp_path / "a.pdf"
    path.write_bytes(data)
    started = time.monotonic()
    found = read_pdf(str(path), limits=WorkerLimits(max_lost=20))
    assert time.monotonic() - started < 60
    if isinstance(found, PdfText):
        assert [span.text for span in found.spans] == ["one\n", "two\n"]


def test_a_worker_without_memory_is_a_refusal_not_a_hang(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["text"])
    found = read_pdf(str(path), limits=WorkerLimits(memory_bytes=20 << 20))
    assert isinstance(found, PdfRefused)
    assert found.reason is SkipReason.DAMAGED


def test_lost_pages_get_a_second_opinion_and_are_named_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second library is asked for the lost page alone; this one fails on it too."""
    fake_worker(monkeypatch, tmp_path, "os.abort()")
    found = read_pdf("x.pdf", limits=QUICK)
    assert isinstance(found, PdfText)
    assert [span.page for span in found.spans] == [1, 3, 4]
    assert found.warnings[0].startswith("page 2 could not be read")


def test_modules_of_the_folder_one_stands_in_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder may be the repository being read; its json.py must not run."""
    path = write_pdf(tmp_path / "a.pdf", ["text"])
    (tmp_path / "json.py").write_text("raise SystemExit('foreign code ran')")
    monkeypatch.chdir(tmp_path)
    assert read(path).spans[0].text == "text\n"


def test_progress_counts_pages(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = write_pdf(tmp_path / "a.pdf", ["a", "b", "c"])
    read_pdf(str(path), on_page=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_the_worker_imports_nothing_heavy() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import kvcli.corpus.pdf_worker, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    ).stdout.split()
    assert not {"torch", "transformers", "pypdf", "tree_sitter", "rich"} & set(loaded)
