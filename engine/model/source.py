"""Where a model's files are: a folder, a `.gguf` file, or a snapshot in the hub's cache.

Owns finding and fetching, and the check that the files are whole. Loads no weights. The network is
touched only for a hub id that the cache does not hold completely, and never when offline.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from engine.errors import KVError, ModelError

INDEX = "model.safetensors.index.json"

HUB_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
"""Files of a hub repository that a model, its tokenizer and its template can need."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model.

    Attributes:
        name: What the model is called in messages.
        folder: Holds config, weights and tokenizer, or the GGUF file.
        gguf: Name of the GGUF file in `folder`, which then holds everything.
    """

    name: str
    folder: Path
    gguf: str | None = None


def locate(source: Path | str, *, offline: bool) -> ModelFiles:
    """Find a model's files, fetching them if they are on the hub and allowed to be fetched.

    Args:
        source: Folder, `.gguf` file, or hub id `org/name`; a local path wins over a hub id.
        offline: Never touch the network.

    Returns:
        Files that are present and whole, as far as their headers tell.

    Raises:
        ModelError: Nothing there, not fetched while offline, incomplete or damaged.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return _gguf_file(path)
    if path.is_dir():
        files = ModelFiles(path.resolve().name, path)
        check_files(files)
        return files
    if (
        isinstance(source, Path)
        or str(source).startswith(("/", ".", "~"))
        or path.suffix == ".gguf"
    ):
        raise ModelError(f"no model at {source}", "Check the path for a typing error.")
    return _hub_files(source, offline)


def check_files(files: ModelFiles) -> None:
    """Check that config, tokenizer and weights are present, and the weights' headers sound.

    Raises:
        ModelError: Names the file.
    """
    folder = files.folder
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"no model in {folder}: config.json is missing",
            "Give the folder that save_pretrained wrote, or a .gguf file.",
        )
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        raise ModelError(
            f"{files.name}: no tokenizer in {folder}",
            "Put the model's tokenizer.json beside its config.json.",
        )


def check_weights(files: ModelFiles) -> None:
    """Check that every weight file is present and as long as its header says.

    Raises:
        ModelError: Names the file.
    """
    for path in _weight_paths(files):
        if not path.is_file():
            raise ModelError(
                f"{files.name}: weight file {path.name} is missing", "Fetch the model again."
            )
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{files.name}: {path.name} is damaged or cut short ({first_line(error)})",
                "Fetch the model again.",
            ) from error


def first_line(error: Exception) -> str:
    """Return what an error of a library says, as far as it fits into a line of ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__


def _weight_paths(files: ModelFiles) -> list[Path]:
    """List the safetensors files of a folder, those named by its index if it has one."""
    index = files.folder / INDEX
    if index.is_file():
        try:
            named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, OSError) as error:
            raise ModelError(
                f"{files.name}: {INDEX} is damaged", "Fetch the model again."
            ) from error
        return [files.folder / name for name in sorted(named)]
    single = files.folder / "model.safetensors"
    if not single.is_file():
        raise ModelError(
            f"{files.name}: no weights in {files.folder}: model.safetensors is missing",
            "Weights are read from safetensors or GGUF files; convert other formats first.",
        )
    return [single]


def _gguf_file(path: Path) -> ModelFiles:
    """Check the magic number of a GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file", "Give a .gguf file or a model folder.")
    return ModelFiles(path.stem, path.parent, path.name)


def _hub_files(hub_id: str, offline: bool) -> ModelFiles:
    """Return a complete snapshot, from the cache if it can be."""
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return _snapshot(hub_id, cached_only=True)
    except HFValidationError as error:
        raise ModelError(
            f"unknown model {hub_id!r}: neither a path nor a hub id",
            "Give a folder, a .gguf file, or a hub id such as org/name.",
        ) from error
    except (LocalEntryNotFoundError, ModelError) as error:
        if offline:
            raise ModelError(
                f"{hub_id} is not complete in the hub's cache, and fetching is not allowed offline",
                "Run once without --offline to fetch it.",
            ) from error
    try:
        return _snapshot(hub_id, cached_only=False)
    except KVError:
        raise
    except Exception as error:  # the hub's client, its HTTP library, the disk
        raise ModelError(
            f"{hub_id} is not in the hub's cache and could not be fetched ({first_line(error)})",
            "Check the name and the network; run `hf auth login` if the model is gated.",
        ) from error


def _snapshot(hub_id: str, *, cached_only: bool) -> ModelFiles:
    """Return a snapshot that has been checked."""
    from huggingface_hub import snapshot_download  # only a hub id needs the hub's client

    folder = snapshot_download(hub_id, allow_patterns=HUB_PATTERNS, local_files_only=cached_only)
    files = ModelFiles(hub_id, Path(folder))
    check_files(files)
    check_weights(files)
    return files
