"""The child process that reads one file after another: HTML, e-books, office documents, mail.

A request a line on stdin, an answer a line on stdout: a reading as `reading` writes it, or
`{"refused": reason, "detail"}`, or `{"unlike": true}` for a file that is not of its format. Runs
alone because parsers of such files can be made to take any time or memory. A reader is imported
when its first file comes.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from .child_limits import limit_resources
from .reading import NotRead, NotThisFormat, to_message
from .spans import SkipReason

MAX_CHARS = 64_000_000
"""Text of one file."""


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        limit_resources(request["memory_bytes"], request["cpu_seconds"])
        answer = json.dumps(_answer(request["reader"], request["path"]))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def _answer(reader: str, path: str) -> dict[str, Any]:
    try:
        module, _, function = reader.partition(":")
        read = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        with open(path, "rb") as file:
            reading = read(file)
        if sum(len(span.text) for span in reading.spans) > MAX_CHARS:
            return _refused(SkipReason.DAMAGED, "it holds more text than a document can")
        return to_message(reading)
    except NotThisFormat:
        return {"unlike": True}
    except NotRead as refusal:
        return _refused(refusal.reason, refusal.detail)
    except RecursionError:
        return _refused(SkipReason.DAMAGED, "damaged: nested too deeply")
    except MemoryError:
        return _refused(SkipReason.DAMAGED, "reading it takes more memory than a document may")
    except OSError as error:
        return _refused(SkipReason.UNREADABLE, error.strerror or str(error))
    except Exception as error:  # a library met what its authors did not think of
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return _refused(SkipReason.DAMAGED, f"its reader fails ({told})")


def _refused(reason: SkipReason, detail: str) -> dict[str, Any]:
    return {"refused": reason.value, "detail": detail}


if __name__ == "__main__":
    main()
