"""A page as it is read: what is kept, in which form, with which lines, and what is left out."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcli.corpus.blocks import spans_of
from kvcli.corpus.decode import Decoded
from kvcli.corpus.html import decode_html, read_html, read_page
from kvcli.corpus.reading import NotRead


def text_of(markup: str) -> str:
    return "\n\n".join(block.text for block in read_html(markup))


def test_headings_name_the_spans_with_the_lines_of_the_file() -> None:
    page = (
        "<!doctype html>\n<h1>Use</h1>\n<p>a\n"
        "<h2>On\nLinux</h2>\n<p>b</p>\n\n<p>c</p>\n<h2>Mac</h2>"
    )
    assert [(span.name, span.lines) for span in spans_of(read_html(page))] == [
        ("Use", (2, 3)),
        ("Use > On Linux", (4, 8)),
        ("Use > Mac", (9, 9)),
    ]


def test_only_what_a_reader_sees_is_text() -> None:
    page = (
        "<head><style>s</style></head><body><nav>n</nav><script>j</script><p hidden>h</p>"
        '<p style="color:red; display: none">d</p><template><p>t</p></template><!-- c -->'
        "<noscript>o</noscript><form><button>b</button><p>seen</p></form><svg><text>v</text></svg>"
    )
    assert text_of(page) == "seen"


def test_the_title_is_told_where_no_heading_says_it() -> None:
    assert text_of("<title>Piers</title><p>x") == "Piers\n\nx"
    assert text_of("<title>Piers</title><h1>Piers</h1>") == "# Piers"


def test_white_space_is_squeezed_and_breaks_are_kept() -> None:
    assert text_of("<p> a\n  <b>b</b>\t c<br>d&nbsp;e </p>") == "a b c\nd\xa0e"


def test_marks_that_carry_meaning_are_kept() -> None:
    page = "<p>x<sup>2</sup> CO<sub>2</sub> <s>9</s> 8 <code>a &lt; b</code> <q>so</q></p>"
    assert text_of(page) == 'x^2 CO_2 ~~9~~ 8 `a < b` "so"'


def test_a_picture_is_its_alternative_text() -> None:
    assert text_of('<p><img alt="the  pier"><img src=x></p>') == "[image: the pier]"


def test_lists_keep_their_order_and_nesting() -> None:
    page = "<p>l</p><ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d<p>e</p></li></ol><p>f</p>"
    (span,) = spans_of(read_html(page))
    assert span.text == "l\n\n1. a\n  - b\n  - c\n2. d\n\n  e\n\nf\n"


def test_listings_are_kept_as_they_stand() -> None:
    page = "<pre><code>def f():\n\n    return '```'\n</code></pre>"
    assert text_of(page) == "````\ndef f():\n\n    return '```'\n````"


def test_quotations_are_marked() -> None:
    assert text_of("<blockquote><p>a<br>b</p></blockquote>") == "> a\n> b"


TABLE = (
    "<table><tr><th>pier<th>year<th>by</tr>"
    "<tr><td rowspan=2>7<td>1990<td>a|b</tr><tr><td colspan=2>none</tr></table>"
)


def test_cells_stand_in_their_columns() -> None:
    (span,) = spans_of(read_html(TABLE))
    assert span.text == (
        "| pier | year | by |\n| --- | --- | --- |\n| 7 | 1990 | a\\|b |\n|  | none |  |\n"
    )


def test_the_rest_of_a_long_table_knows_its_columns() -> None:
    page = TABLE.replace("</table>", "<tr><td>1<td>2<td>3</tr>" * 100 + "</table>")
    first, *rest = spans_of(read_html(page))
    assert first.note is None
    assert {span.note for span in rest} == {"| pier | year | by |"}


def test_a_table_that_arranges_a_page_is_no_table() -> None:
    page = "<table><tr><td><h2>Left</h2><p>a<td><table><tr><td>x<td>y</table></table>"
    assert text_of(page) == "## Left\n\na\n\n| x | y |"


def test_a_named_encoding_is_believed_where_the_bytes_are_not_utf_8() -> None:
    page = '<meta http-equiv=x content="text/html; charset=Shift_JIS"><p>橋'
    for encoding in ("shift_jis", "utf-8"):
        decoded = decode_html(page.encode(encoding))
        assert isinstance(decoded, Decoded)
        assert decoded.text == page


def test_tags_that_close_themselves_do_not_swallow_a_page() -> None:
    page = '<?xml version="1.0"?>\n<html xmlns="x"><head><title/><script src="a>b"/></head><p>seen'
    (block,) = read_html(page)
    assert (block.text, block.lines) == ("seen", (2, 2))


def test_a_page_without_text_is_refused() -> None:
    with pytest.raises(NotRead, match="scripts are not run"):
        read_page(io.BytesIO(b"<html><script>render()</script></html>"))


@pytest.mark.parametrize(
    "hostile",
    [
        "<div>" * 10_000 + "x",
        "<ul><li>" * 5_000 + "x",
        "<blockquote>" * 2_000 + "x",
        "<table><tr><td>" * 1_000 + "x",
        "<b>" * 1_000 + "<p>x" * 300,
        "<table><tr>" + "<td colspan=1000 rowspan=1000>x" * 200 + "</table>",
        "<!--" * 50_000 + "x",
        "<" * 50_000 + "x",
        "&" * 50_000 + "x",
        "<html xmlns=" + "<a " * 50_000 + "/>x",
        '<html xmlns="x"><a \'' + "x" * 200_000,
        "<pre>" * 2_000 + "`" * 20_000,
    ],
    ids=range(12),
)
def test_hostile_markup_takes_bounded_time_and_room(hostile: str) -> None:
    started = time.monotonic()
    blocks = read_html(hostile)
    assert time.monotonic() - started < 60
    assert sum(len(block.text) for block in blocks) < 20 * len(hostile)


PIECES = [
    "<p>", "</p>", "<h1>", "</h1>", "<h3>", "<ul>", "</ul>", "<ol>", "<li>", "</li>", "<table>",
    "</table>", "<tr>", "<td>", "<th rowspan=3>", "<td colspan=x>", "<pre>", "</pre>", "<br>", "\n",
    "text ", "&amp;", "&#0;", "<blockquote>", "</blockquote>", "<title>", "</title>", "<script>",
    "<!--", "-->", "<svg>", "<math>", "<template>", "<p hidden>", "<img alt=a>", "\x00", "</",
    "<?xml ?>", "<![CDATA[", "<a/>", "<select>", "<body>", "<frameset>", "\r\n",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=40).map("".join))
@settings(deadline=None, max_examples=60)
def test_any_markup_is_read(markup: str) -> None:
    num_lines = markup.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    for span in spans_of(read_html(markup)):
        assert span.text.strip()
        assert span.lines is None or 1 <= span.lines[0] <= span.lines[1] <= num_lines
