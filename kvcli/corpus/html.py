"""HTML to blocks of readable text, as a browser would show it without its styles.

Owns the layout: paragraphs, headings, lists, quotations, listings and tables. Left out are scripts,
styles, forms, navigation, the targets of links, pictures but for their alternative text, and what
is marked as hidden. justhtml parses by the standard's rules for broken markup, in Python alone, and
tells the line of every piece, so blocks know their lines. Nothing is fetched, and nothing recurses:
markup may be nested as deeply as it likes.
"""

from __future__ import annotations

import codecs
import re
from typing import BinaryIO

from justhtml import JustHTML, Node, Text

from .blocks import Block, spans_of
from .decode import Decoded, NotText, decode
from .html_dom import BLOCKS, MARKS, Step, flat, image, last_line, squeezed, walk
from .html_table import is_data_table, rows_of
from .reading import NotRead, Reading
from .spans import SkipReason

_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
})  # fmt: skip
_LISTS = ("ul", "ol", "menu", "dir")
_MAX_DEPTH_SHOWN = 8
_CHARSET = re.compile(
    rb"""<meta\b[^>]{0,200}?\bcharset\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{2,40})""", re.IGNORECASE
)
_HEAD_BYTES = 4096
_XHTML = re.compile(r"\s*<\?xml\b|\s*<html\b[^<>]*\bxmlns=|\s*<!DOCTYPE[^<>]*\bXHTML\b")
_DECLARATION = re.compile(r"\s*<\?xml\b[^<>]*>")
_EMPTY_TAG = re.compile(r"""<([A-Za-z][\w:.-]*)((?:[^<>"']|"[^"<]*"|'[^'<]*')*)/>""")


def read_page(file: BinaryIO) -> Reading:
    """Read a page that is a file of its own.

    Raises:
        NotRead: It is not text, or shows none.
    """
    decoded = decode_html(file.read())
    if isinstance(decoded, NotText):
        raise NotRead(SkipReason.BINARY, decoded.detail)
    spans = spans_of(read_html(decoded.text))
    if not spans:
        raise NotRead(SkipReason.EMPTY, "a page without text; scripts are not run")
    return Reading(spans, [decoded.warning] if decoded.warning else [])


def decode_html(data: bytes) -> Decoded | NotText:
    """Decode a page: as any text, except that a legacy encoding is believed where it is named."""
    decoded = decode(data)
    declared = _CHARSET.search(data, 0, _HEAD_BYTES)
    if declared is None or (isinstance(decoded, Decoded) and decoded.warning is None):
        return decoded
    try:
        encoding = codecs.lookup(declared[1].decode("ascii")).name
        return Decoded(data.decode(encoding), encoding)
    except (LookupError, ValueError):
        return decoded


def read_html(text: str, *, with_title: bool = True) -> list[Block]:
    """The blocks of a page or of a piece of one, in order.

    Args:
        text: The markup.
        with_title: Begin with the page's title, where no heading of it says the same.
    """
    if _XHTML.match(text):
        text = _as_html(text)
    root = JustHTML(text, sanitize=False, track_node_locations=True).root
    assert root is not None
    writer = _Writer()
    writer.write(root)
    title = _title(root) if with_title else None
    headings = {block.text.lstrip("# ") for block in writer.out if block.level}
    if title is not None and title.text not in headings:
        return [title, *writer.out]
    return writer.out


def _as_html(xhtml: str) -> str:
    """XHTML as HTML takes it, line by line the same.

    To HTML a tag such as `<title/>` only opens, and would take in the rest of the page.
    """
    declared = _DECLARATION.match(xhtml)
    if declared:
        xhtml = "\n" * declared[0].count("\n") + xhtml[declared.end() :]
    return _EMPTY_TAG.sub(_opened_and_closed, xhtml)


def _opened_and_closed(tag: re.Match[str]) -> str:
    name, attributes = tag.groups()
    return tag[0] if name.lower() in _VOID else f"<{name}{attributes}></{name}>"


def _title(root: Node) -> Block | None:
    """What the page's head calls it."""
    nodes = [root]
    for name in ("html", "head", "title"):
        nodes = [kid for node in nodes for kid in node.children or () if kid.name == name]
    text = flat(nodes[0]) if nodes else ""
    line = nodes[0].origin_line if nodes else None
    return Block(text, (line, last_line(nodes[0])) if line else None) if text else None


class _Writer:
    """Collects the text of one page, block by block."""

    def __init__(self) -> None:
        self.out: list[Block] = []
        self._pieces: list[str] = []
        self._first = self._last = 0
        """Lines of the pieces; 0: not known."""
        self._counters: list[int | None] = []
        """One for each open list: the number of the last item, None where items have none."""
        self._marker = ""
        self._was_in_list = False
        self._quotes = 0
        self._listings = 0

    def write(self, root: Node) -> None:
        """Add all blocks below a node."""
        for step, node in walk(root, lambda node: node.name == "table" and is_data_table(node)):
            if isinstance(node, Text):
                self._text(node)
            elif step is Step.WHOLE:
                self._flush()
                self.out += rows_of(node)
            elif step is Step.ENTER:
                self._enter(node)
            else:
                self._leave(node)
        self._flush()

    def _text(self, node: Text) -> None:
        data = node.data or ""
        if not data.strip() and not (self._listings or self._pieces):
            return
        line = node.origin_line or 0
        if line and data.strip():
            blank = 0 if self._listings else data[: len(data) - len(data.lstrip())].count("\n")
            self._first = self._first or line + blank
            self._last = max(self._last, line + data.rstrip().count("\n"))
        self._pieces.append(data if self._listings else squeezed(data))

    def _enter(self, node: Node) -> None:
        name = node.name
        if name in BLOCKS:
            self._flush()
        if name in _LISTS:
            self._counters.append(0 if name == "ol" else None)
        elif name == "li":
            self._marker = self._next_marker()
        elif name == "blockquote":
            self._quotes += 1
        elif name == "pre":
            self._listings += 1
        elif name == "br":
            self._pieces.append("\n")
        elif name == "img":
            self._pieces.append(image(node))
        elif name in MARKS and not self._listings:
            self._pieces.append(MARKS[name][0])

    def _leave(self, node: Node) -> None:
        name = node.name
        if name in BLOCKS:
            self._flush(int(name[1]) if name[0] == "h" and name[1:].isdecimal() else 0)
        if name in _LISTS:
            self._counters.pop()
            self._was_in_list = bool(self._counters)
        elif name == "li":
            self._marker = ""
        elif name == "blockquote":
            self._quotes -= 1
        elif name == "pre":
            self._listings -= 1
        elif name in MARKS and not self._listings:
            self._pieces.append(MARKS[name][1])

    def _next_marker(self) -> str:
        counter = self._counters[-1] if self._counters else None
        if counter is None:
            return "- "
        self._counters[-1] = counter + 1
        return f"{counter + 1}. "

    def _flush(self, level: int = 0) -> None:
        """End a block."""
        text = "".join(self._pieces)
        self._pieces = []
        lines = (self._first, self._last) if self._first else None
        self._first = self._last = 0
        if not text.strip():
            return
        if self._listings:
            text = _fenced(text.strip("\n"))
        elif level:
            text = "#" * level + " " + squeezed(text).strip()
        else:
            text = "\n".join(line.strip() for line in text.strip().split("\n"))
        is_tight = bool(self._marker) and self._was_in_list
        self._was_in_list = bool(self._counters)
        self.out.append(Block(self._indented(text), lines, level, is_tight))

    def _indented(self, text: str) -> str:
        """Set a block below its list items and quotations."""
        marker, self._marker = self._marker, ""
        depth = min(len(self._counters), _MAX_DEPTH_SHOWN) - bool(marker)
        lead = "> " * min(self._quotes, _MAX_DEPTH_SHOWN) + "  " * max(depth, 0)
        rest = lead + " " * len(marker)
        return lead + marker + text.replace("\n", "\n" + rest)


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def links_of_nav(text: str) -> list[tuple[str, str]]:
    """Target and text of every link inside a page's `nav` elements: a table of contents."""
    root = JustHTML(_as_html(text), sanitize=False).root
    assert root is not None
    found = []
    stack = [(root, False)]
    while stack:
        node, is_inside = stack.pop()
        if is_inside and node.name == "a":
            found.append(((node.attrs or {}).get("href") or "", flat(node)))
        inside = is_inside or node.name == "nav"
        stack += [(kid, inside) for kid in reversed(node.children or ())]
    return found
