"""What a session's updates cost by the order of its files: replayed over a repository's history.

The session is ingested at the commit `--back` commits before the last; each later commit is an
update. An update reads again what lies behind the first file that has changed. Files keep the
places they had at the ingest, new ones come last. Bytes stand for tokens; nothing is computed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvcli.corpus.discover import in_reading_order
from kvcli.corpus.listing import shares_of_commits
from tests.bench.harness import report


def git(folder: Path, *words: str) -> str:
    """What a git command prints."""
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)
    return done.stdout.decode("utf-8", "replace")


def sizes_at(folder: Path, commit: str) -> dict[str, int]:
    """Bytes of every file of a commit."""
    lines = git(folder, "ls-tree", "-r", "-l", "-z", commit).split("\0")
    entries = (line.split("\t", 1) for line in lines if line)
    return {path: int(head.split()[3]) for head, path in entries if head.split()[1] == "blob"}


def shares(order: Sequence[str], folder: Path, commits: Sequence[str]) -> list[float]:
    """Share of all bytes that each update reads again, first commit first."""
    places, costs = list(order), []
    before = commits[0]
    for commit in commits[1:]:
        sizes = sizes_at(folder, commit)
        changed = set(
            git(folder, "diff", "--name-only", "--no-renames", "-z", before, commit).split("\0")
        )
        gone = next((at for at, path in enumerate(places) if path in changed), len(places))
        places = [path for path in places if path in sizes]
        places += sorted(sizes.keys() - set(places))
        first = sum(sizes[path] for path in places[:gone] if path in sizes)
        costs.append(1 - first / sum(sizes.values()))
        before = commit
    return costs


def row(costs: Sequence[float]) -> Mapping[str, float]:
    """Of all updates."""
    return {
        "mean share read again": statistics.mean(costs),
        "median": statistics.median(costs),
        "updates": float(len(costs)),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("--back", type=int, default=40)
    choices = parser.parse_args()
    folder: Path = choices.repository
    log = git(folder, "rev-list", "--first-parent", f"-n{choices.back + 1}", "HEAD").split()
    commits = log[::-1]
    entries = list(sizes_at(folder, commits[0]))
    changes = shares_of_commits(folder, commits[0])
    rows = {
        "by name": row(shares(in_reading_order(entries, {}), folder, commits)),
        "by changes": row(shares(in_reading_order(entries, changes), folder, commits)),
    }
    report("updates by the order of files", rows, files=len(entries))


if __name__ == "__main__":
    main()
