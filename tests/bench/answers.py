"""How many questions of the example report's key are answered right, and cited right.

Asks by the command line as a user would: one session is ingested, each question goes to a fresh
copy of it. An answer is right if it matches the key; a source is right if it is a page of the key.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.harness import ROOT, report


def kvcli(*arguments: str) -> str:
    """Run one command and give its stdout."""
    command = [sys.executable, "-m", "kvcli.app", *arguments, "--dashboard", "off"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=10, help="the first N of the key")
    parser.add_argument("--pages", type=int, default=12, help="pages of the generated report")
    parser.add_argument("--attention", default="auto", help="auto, exact or focus")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pdf, key, session = folder / "report.pdf", folder / "key.json", folder / "r.kv"
        make = [sys.executable, "examples/make_report.py", "--pages", str(options.pages)]
        subprocess.run(
            [*make, "--output", str(pdf), "--key", str(key)],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
        kvcli("ingest", str(pdf), "-o", str(session), "--attention", options.attention)
        right = first = listed = 0
        asked = json.loads(key.read_text())[: options.questions]
        for entry in asked:
            copy = folder / "copy.kv"
            shutil.copy(session, copy)
            out = kvcli("resume", str(copy), entry["question"], "--json", "--max-tokens", "48")
            found = json.loads(out)
            is_right = any(re.search(p, found["answer"], re.IGNORECASE) for p in entry["accept"])
            pages = [citation["page"] for citation in found["citations"]]
            right += is_right
            first += bool(pages) and pages[0] in entry["pages"]
            listed += bool(set(pages) & set(entry["pages"]))
            mark = "right" if is_right else "wrong"
            print(f"{mark} {entry['question']} | {entry['answer']} | {found['answer'][:90]!r}")
            print(f"      cited {pages}, key {entry['pages']}")
    rows = {
        "answers right": {"of": len(asked), "count": right},
        "right page cited first": {"of": len(asked), "count": first},
        "right page cited": {"of": len(asked), "count": listed},
    }
    report(f"answers on the {options.pages}-page report, {options.attention}", rows)


if __name__ == "__main__":
    main()
