"""The sample report: its pages, labels, facts and key, read back from the PDF."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pypdfium2
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "make_report.py"


def write_report(folder: Path, *options: str) -> tuple[Path, list[dict[str, Any]]]:
    output = folder / "report.pdf"
    subprocess.run([sys.executable, SCRIPT, "--output", output, *options], check=True)
    return output, json.loads(output.with_suffix(".key.json").read_text("utf-8"))


def read_pages(path: Path) -> list[tuple[str, str]]:
    """The label and the text of every page, white space collapsed."""
    with pypdfium2.PdfDocument(path) as document:
        return [
            (
                document.get_page_label(index),
                re.sub(r"\s+", " ", page.get_textpage().get_text_range()),
            )
            for index, page in enumerate(document)
        ]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    return write_report(tmp_path_factory.mktemp("short"))


def test_twelve_pages_labelled_with_roman_and_arabic_numbers(
    short: tuple[Path, list[dict[str, Any]]],
) -> None:
    labels = [label for label, _ in read_pages(short[0])]

    assert labels == ["i", "ii", *[str(number) for number in range(1, 11)]]


def test_the_short_report_leaves_room_for_a_question_in_a_window_of_8192(
    short: tuple[Path, list[dict[str, Any]]],
) -> None:
    """About 0.24 tokens a character were counted with the default model's tokenizer."""
    assert sum(len(text) for _, text in read_pages(short[0])) < 25_000


def test_every_answer_stands_on_its_pages(short: tuple[Path, list[dict[str, Any]]]) -> None:
    path, key = short
    pages = read_pages(path)

    assert len(key) >= 10
    assert len({entry["question"] for entry in key}) == len(key)
    for entry in key:
        assert entry["page"] == entry["pages"][0]
        assert entry["label"] == pages[entry["page"] - 1][0]
        for page in entry["pages"]:
            assert entry["answer"] in pages[page - 1][1], entry


def test_the_accepted_patterns_take_the_answer_and_no_neighbour(
    short: tuple[Path, list[dict[str, Any]]],
) -> None:
    for entry in short[1]:
        right = f"It was {entry['answer']}."
        assert any(re.search(pattern, right, re.I) for pattern in entry["accept"]), entry
        wrong = f"It was 7{entry['answer']}5 or Nobody."
        assert not any(re.search(pattern, wrong, re.I) for pattern in entry["accept"]), entry


def test_the_costs_add_up(short: tuple[Path, list[dict[str, Any]]]) -> None:
    path, key = short
    (total,) = [entry for entry in key if "total" in entry["question"]]
    text = read_pages(path)[total["pages"][-1] - 1][1]
    table = text[text.index("Cost (£)") : text.index("Total")]

    costs = [int(cost.replace(",", "")) for cost in re.findall(r"\b\d+,\d{3}\b", table)]
    assert sum(costs) == int(total["answer"].replace(",", ""))


def test_equal_seeds_give_equal_bytes_and_others_other_facts(
    short: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    again, key = write_report(tmp_path)
    assert again.read_bytes() == short[0].read_bytes()
    assert key == short[1]

    _, other = write_report(tmp_path, "--seed", "8")
    assert [entry["answer"] for entry in other] != [entry["answer"] for entry in key]


def test_longer_reports_have_exactly_the_pages_asked_for(tmp_path: Path) -> None:
    path, key = write_report(tmp_path, "--pages", "40")
    pages = read_pages(path)

    assert len(pages) == 40
    last = key[-1]
    assert (last["page"], last["label"]) == (40, "38")
    assert last["answer"] in pages[39][1]


@pytest.mark.parametrize(("pages", "complaint"), [("5", "at least 12"), ("9999", "the bridge has")])
def test_impossible_lengths_give_one_line(pages: str, complaint: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--pages", pages, f"--output={tmp_path}/r.pdf"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert complaint in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.glob("r*")) == []
