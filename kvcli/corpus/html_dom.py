"""Walking a parsed page: what a reader of it would see, in order, without recursion.

Owns which elements and which marked as hidden are left out. Knows nothing of layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum

from justhtml import Node, Text

LEFT_OUT = frozenset({
    "audio", "button", "canvas", "datalist", "embed", "head", "iframe", "input", "map", "nav",
    "noscript", "object", "script", "select", "style", "svg", "template", "textarea", "video",
})  # fmt: skip
BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details",
    "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header",
    "hgroup", "hr", "html", "legend", "li", "main", "menu", "ol", "p", "pre", "search", "section",
    "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
    "h1", "h2", "h3", "h4", "h5", "h6",
})  # fmt: skip
MARKS = {
    "sup": ("^", ""), "sub": ("_", ""), "del": ("~~", "~~"), "s": ("~~", "~~"),
    "strike": ("~~", "~~"), "code": ("`", "`"), "q": ('"', '"'),
}  # fmt: skip
"""What would read wrong without a mark: x² as x2, a price struck out as the price."""

_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\r\f]+")


class Step(Enum):
    """What a walk does at a node."""

    ENTER = "enter"
    LEAVE = "leave"
    WHOLE = "whole"
    TEXT = "text"


def walk(
    root: Node, is_whole: Callable[[Node], bool] = lambda _: False
) -> Iterator[tuple[Step, Node | Text]]:
    """Every visible node below `root` on entering and on leaving, and every text.

    Args:
        root: Where to begin; not a step itself.
        is_whole: Nodes that are one step, and whose children are none.
    """
    stack: list[tuple[Step, Node | Text]] = _children(root)
    while stack:
        step, node = stack.pop()
        if step is Step.LEAVE or isinstance(node, Text):
            yield step, node
        elif is_whole(node):
            yield Step.WHOLE, node
        else:
            yield Step.ENTER, node
            stack.append((Step.LEAVE, node))
            stack += _children(node)


def _children(node: Node) -> list[tuple[Step, Node | Text]]:
    """The visible children as steps to come, last first."""
    found: list[tuple[Step, Node | Text]] = []
    for child in reversed(node.children or ()):
        if isinstance(child, Text):
            if child.name == "#text":
                found.append((Step.TEXT, child))
        elif is_visible(child):
            found.append((Step.ENTER, child))
    return found


def is_visible(node: Node) -> bool:
    """Whether a browser shows an element that is no comment, as far as its own markup says."""
    if node.name.startswith(("#", "!")):
        return False
    attrs = node.attrs or {}
    return (
        node.name not in LEFT_OUT
        and "hidden" not in attrs
        and not _HIDDEN.search(attrs.get("style") or "")
    )


def squeezed(text: str) -> str:
    """Runs of white space as one space; no-break spaces are kept."""
    return _SPACE.sub(" ", text)


def flat(root: Node) -> str:
    """All text of a node on one line."""
    pieces: list[str] = []
    for step, node in walk(root):
        if isinstance(node, Text):
            pieces.append(node.data or "")
        elif node.name in MARKS:
            pieces.append(MARKS[node.name][step is Step.LEAVE])
        elif node.name == "img" and step is Step.ENTER:
            pieces.append(image(node))
        elif node.name == "br" or node.name in BLOCKS:
            pieces.append(" ")
    return squeezed("".join(pieces)).strip()


def last_line(root: Node) -> int:
    """The last line of the file on which a node has text; 0: not known."""
    texts = (node for _, node in walk(root) if isinstance(node, Text) and (node.data or "").strip())
    ends = ((text.origin_line or 0) + (text.data or "").rstrip().count("\n") for text in texts)
    return max(ends, default=0)


def image(node: Node) -> str:
    """The alternative text of a picture, which is all that can be read of it."""
    told = squeezed((node.attrs or {}).get("alt") or "").strip()
    return f"[image: {told}]" if told else ""
