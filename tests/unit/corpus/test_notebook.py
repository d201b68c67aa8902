"""Notebooks: sources and text outputs, pictures as placeholders."""

from __future__ import annotations

import json

from kvcli.corpus.notebook import cut_notebook


def notebook(*cells: dict[str, object]) -> str:
    return json.dumps({"nbformat": 4, "cells": cells})


def test_cells_are_named_and_lines_count_within_them() -> None:
    spans = cut_notebook(
        notebook(
            {"cell_type": "markdown", "source": ["# Title\n", "text"]},
            {"cell_type": "code", "source": "x = 1\nx", "outputs": []},
        )
    )
    assert spans is not None
    assert [(span.name, span.lines) for span in spans] == [("cell 1", (1, 2)), ("cell 2", (1, 2))]
    assert spans[0].text == "# %% cell 1 [markdown]\n# Title\ntext\n"
    assert spans[1].text == "# %% cell 2\nx = 1\nx\n"


def test_text_outputs_are_kept_and_pictures_become_placeholders() -> None:
    outputs = [
        {"output_type": "stream", "text": ["one\n", "two\n"]},
        {
            "output_type": "display_data",
            "data": {"image/png": "A" * 4_000, "text/plain": "<Figure>"},
        },
        {"output_type": "execute_result", "data": {"text/plain": ["42"]}},
        {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["\x1b[31m"]},
    ]
    spans = cut_notebook(notebook({"cell_type": "code", "source": "f()", "outputs": outputs}))
    assert spans is not None
    assert spans[1].name == "cell 1 output"
    assert spans[1].text == (
        "# output of cell 1\none\ntwo\n[image/png, about 3,000 bytes]\n42\nKeyError: 'x'\n"
    )


def test_flooding_output_is_cut_and_says_so() -> None:
    output = {"output_type": "stream", "text": "x" * 10_000}
    spans = cut_notebook(notebook({"cell_type": "code", "source": "f()", "outputs": [output]}))
    assert spans is not None
    assert "[6,000 more characters of output left out]" in spans[1].text


def test_unknown_cells_and_wrong_types_do_no_harm() -> None:
    spans = cut_notebook(
        notebook(
            {"cell_type": "from the future", "source": 7, "outputs": {"a": 1}},
            {"cell_type": "raw", "source": ["ok", None]},
        )
    )
    assert spans is not None
    assert [span.name for span in spans] == ["cell 2"]


def test_what_is_no_notebook_is_refused() -> None:
    for text in ("", "{", "[]", '{"cells": 1}', '{"worksheets": []}', "[" * 100_000):
        assert cut_notebook(text) is None


def test_half_characters_become_replacement_characters_and_halves_are_joined() -> None:
    r"""JSON can write `\ud83d` alone, which no encoding and no tokenizer takes."""
    half, text = "\ud83d", "a\ud83d"
    outputs = [
        {"output_type": "error", "ename": half, "evalue": half},
        {"output_type": "display_data", "data": {f"image/{half}": "A"}},
    ]
    cells = [
        {"cell_type": f"raw{half}", "source": text},
        {"cell_type": "code", "source": [text, "\ude00"], "outputs": outputs},
    ]
    spans = cut_notebook(json.dumps({"cells": cells}))
    assert spans is not None
    assert [span.text for span in spans] == [
        "# %% cell 1 [raw\ufffd]\na\ufffd\n",
        "# %% cell 2\na😀\n",
        "# output of cell 2\n\ufffd: \ufffd\n[image/\ufffd, about 0 bytes]\n",
    ]
