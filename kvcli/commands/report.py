"""`kvcli report RUN.jsonl`: a run drawn as one page for a browser.

Owns where the page goes. What is in it is `kvcli.report_page`'s.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import ConfigError, StorageError
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.report_page import MARK, report_page
from kvcli.run_log import read_log


def run(options: RunOptions, metrics: Path, *, page: Path | None) -> None:
    """Write the page and say where, or under --json `{"report": PATH}`.

    Args:
        options: How to speak.
        metrics: What `--metrics` has written.
        page: Where to; None: beside it.

    Raises:
        NothingReadable: There is no run in the file.
        ConfigError: The page would replace a file that is no report.
        StorageError: It cannot be written.
    """
    output = Output(options)
    target = page if page is not None else metrics.with_suffix(".html")
    log = read_log(metrics)
    _require_ours(target)
    text = report_page(log, metrics.name)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(
            f"cannot write {target}: {error.strerror}", "Give another place with -o."
        ) from error
    if options.json:
        output.json({"report": str(target)})
    else:
        output.show(str(target))


def _require_ours(target: Path) -> None:
    """Refuse to replace anything but a report.

    Raises:
        ConfigError: Something else is there.
    """
    try:
        with target.open("rb") as file:
            is_ours = file.read(len(MARK)) == MARK.encode()
    except FileNotFoundError:
        return
    except OSError:
        is_ours = False
    if not is_ours:
        raise ConfigError(f"{target} exists and is no report", "Give another place with -o.")
