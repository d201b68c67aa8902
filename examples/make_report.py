"""Write a specimen PDF to try kvcli on: the inspection report of a bridge that does not exist.

    python examples/make_report.py                    # 12 pages: fits the default model's window
    python examples/make_report.py --pages 300        # far beyond it

Beside the PDF lies a key: questions, their answers, and the physical page on which each stands.
The same seed and number of pages give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bridge_report.facts import BridgeFacts, draw_facts
from bridge_report.layout import ReportTemplate, page_label
from bridge_report.sheets import Sheet, draw_sheets
from bridge_report.story import BRIDGE, NUMBER, build_story

CORE_PAGES = 12
"""Pages without component sheets; every further page is one sheet."""


def make_report(pages: int, output: Path, seed: int) -> list[dict[str, Any]]:
    """Typeset the report.

    Args:
        pages: Physical pages, at least 12.
        output: The PDF to write; replaced if it exists.
        seed: Decides every fact.

    Returns:
        The answer key, one object a question.

    Raises:
        ValueError: Fewer pages than the report needs, or more than the bridge has components for.
    """
    if pages < CORE_PAGES:
        raise ValueError(f"the report needs at least {CORE_PAGES} pages, not {pages}")
    facts = draw_facts(seed)
    sheets = draw_sheets(seed, pages - CORE_PAGES)
    template = ReportTemplate(output, f"{BRIDGE}, principal inspection 2024", NUMBER)
    template.multiBuild(build_story(facts, sheets))
    assert template.page == pages, f"{template.page} pages"
    return _answer_key(facts, sheets, template.fact_pages)


def _answer_key(
    facts: BridgeFacts, sheets: list[Sheet], fact_pages: dict[str, set[int]]
) -> list[dict[str, Any]]:
    asked = [fact for fact in facts.by_key.values() if fact.question]
    key = []
    for fact in [*asked, *(sheet.fact for sheet in sheets)]:
        pages = sorted(fact_pages[fact.key])
        key.append(
            {
                "question": fact.question,
                "answer": fact.value,
                "accept": list(fact.patterns),
                "page": pages[0],
                "label": page_label(pages[0]),
                "pages": pages,
            }
        )
    return key


def main() -> int:
    """Write the PDF and its key, and say where they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=CORE_PAGES, help="physical pages (default 12)")
    parser.add_argument("--output", type=Path, default=Path("examples/report.pdf"))
    parser.add_argument("--key", type=Path, help="default: the output's name with .key.json")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    key_path = options.key or options.output.with_suffix(".key.json")
    try:
        key = make_report(options.pages, options.output, options.seed)
        key_path.write_text(json.dumps(key, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except (ValueError, OSError) as error:
        print(f"make_report: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {options.pages} pages; {key_path}: {len(key)} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
