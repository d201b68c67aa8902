"""`kvcli doctor`: what this machine offers, what is missing, and what to do about it.

Owns the checks and their thresholds. Imports torch only inside the checks of devices and weights,
which are the slow ones.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table
from rich.text import Text

from kernels.cpu import cpu_flags, multiplies_bf16
from kvcli.commands.check import Check, Mark
from kvcli.commands.devices import device_checks
from kvcli.corpus.code import CodeCutter
from kvcli.corpus.languages import parsed_languages
from kvcli.disk_probe import DiskProbe, format_extent, probe_disk
from kvcli.fetch import cache_dir
from kvcli.known_disks import remember
from kvcli.models import CATALOGUE, ModelState, list_models
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.settings import config_path
from kvcli.sizes import format_size

GB = 1_000_000_000
PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "safetensors", "gguf", "pypdfium2")
LOW_RAM = 2 * GB
LOW_DISK = 5 * GB
SLOW_DISK = 200_000_000
"""Bytes per second; below, pages wait for the disk longer than they would take to recompute."""


def run(options: RunOptions) -> None:
    """Run every check and print the report.

    Raises:
        SystemExit: With 1, if a check failed.
    """
    output = Output(options)
    checks = []
    table = Table.grid(padding=(0, 2))
    for check in all_checks():
        checks.append(check)
        output.detail(f"checked {check.name}")
        _add(table, check, fancy=output.stdout_console.encoding.startswith("utf"))
    failed = [check.name for check in checks if check.mark is Mark.BAD]
    if options.json:
        output.json({"healthy": not failed, "checks": [_row(check) for check in checks]})
    else:
        output.show(table)
    if failed:
        raise SystemExit(1)  # the report itself says what failed


def _row(check: Check) -> dict[str, Any]:
    row = {**dataclasses.asdict(check), "mark": check.mark.value}
    if check.figures is None:
        del row["figures"]
    return row


def _add(table: Table, check: Check, *, fancy: bool) -> None:
    sign, style = {
        Mark.GOOD: ("✓" if fancy else "ok", "green"),
        Mark.NOTE: ("!", "yellow"),
        Mark.BAD: ("✗" if fancy else "FAILED", "bold red"),
    }[check.mark]
    table.add_row(Text(sign, style), Text(check.name, "bold"), Text(clean(check.found)))
    if check.advice:
        table.add_row("", "", Text(f"→ {check.advice}" if fancy else check.advice, style))


def all_checks() -> Iterator[Check]:
    """Every check in the order of the report; each runs when it is asked for."""
    yield Check("python", Mark.GOOD, f"{platform.python_version()} on {platform.platform()}")
    yield from _packages()
    yield _cpu()
    yield _ram()
    yield from _devices()
    yield from _weights()
    yield from _cache()
    yield _model()
    yield _grammars()
    path = config_path()
    yield Check("config", Mark.GOOD, str(path) if path.exists() else f"none ({path})")


def _packages() -> Iterator[Check]:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield Check("packages", Mark.GOOD, ", ".join(found))
    if missing:
        yield Check("packages", Mark.BAD, f"missing: {', '.join(missing)}", "Install kvcli again.")


def _cpu() -> Check:
    name = platform.processor() or platform.machine()
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    fast = [flag for flag in ("amx_bf16", "avx512_bf16", "avx2") if flag in cpu_flags()]
    cores = psutil.cpu_count(logical=False) or os.cpu_count()
    found = f"{name}, {cores} cores, {fast[0] if fast else 'no vector extensions known'}"
    if fast and fast[0] != "avx2":
        return Check("cpu", Mark.GOOD, found)
    return Check("cpu", Mark.NOTE, found, "No bf16 instructions: products are computed in fp32.")


def _ram() -> Check:
    memory = psutil.virtual_memory()
    found = f"{format_size(memory.available)} of {format_size(memory.total)} available"
    if memory.available < LOW_RAM:
        return Check("ram", Mark.NOTE, found, "Close other programs, or give a small --ram.")
    return Check("ram", Mark.GOOD, found)


def _devices() -> Iterator[Check]:
    try:
        import torch
    except Exception as error:  # a broken installation fails in many ways
        yield Check("devices", Mark.BAD, f"torch cannot be imported: {error}", "Install it again.")
        return
    if not torch.cuda.is_available():
        found = f"the CPU, {torch.get_num_threads()} threads; no CUDA"
        yield Check("devices", Mark.GOOD, found)
        return
    from kvcli.gpu_facts import gather_facts  # has torch, which the other checks need not wait for

    yield from device_checks(gather_facts())


def _weights() -> Iterator[Check]:
    """How the weights of a half-precision model will lie in RAM, and which layers are fused."""
    try:
        from engine.model.fused import KNOWN
        from engine.model.packed import can_pack
    except Exception:  # the check of devices says why
        return
    if multiplies_bf16():
        yield Check("weights", Mark.GOOD, "bf16 as they are")
    elif can_pack():
        yield Check("weights", Mark.GOOD, "fp16, multiplied in fp32 by FBGEMM: nothing is rounded")
    else:
        advice = "Twice as large as on a processor with FBGEMM, and slower to answer."
        yield Check("weights", Mark.NOTE, "fp32: this build of torch has no FBGEMM", advice)
    kinds = ", ".join(name.removesuffix("DecoderLayer") for name in KNOWN)
    yield Check("fused layers", Mark.GOOD, f"{kinds}; others run as transformers has them")


def _cache() -> Iterator[Check]:
    folder = cache_dir()
    move = "Point KVCLI_CACHE_DIR at a folder that can be written."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        probe = probe_disk(folder)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield Check("cache", Mark.BAD, f"{folder}: {error.strerror}", move)
        return
    yield Check("cache", Mark.GOOD, f"{folder}, {format_size(used)} used")
    low = "Long documents need about 23 GB per million tokens." if free < LOW_DISK else ""
    yield Check("disk free", Mark.NOTE if low else Mark.GOOD, format_size(free), low)
    remember(folder, probe)
    slow = min(probe.choice().rate, probe.write) < SLOW_DISK
    advice = "Keep sessions on a faster disk." if slow else ""
    mark = Mark.NOTE if slow else Mark.GOOD
    figures = {**dataclasses.asdict(probe), "choice": dataclasses.asdict(probe.choice())}
    yield Check("disk speed", mark, probe.describe(), advice, figures)
    yield Check("disk reads", Mark.GOOD, _grid(probe))


def _grid(probe: DiskProbe) -> str:
    """Every rate measured: `64 KiB: 890 MB/s by 1, 1.4 GB/s by 2; 256 KiB: ...`."""
    rows = []
    for extent, points in groupby(probe.grid, key=lambda point: point.extent_bytes):
        rates = [f"{format_size(point.rate)}/s by {point.threads}" for point in points]
        rows.append(f"{format_extent(extent)}: {', '.join(rates)}")
    return f"{'; '.join(rows)} (threads)"


def _model() -> Check:
    default = next(entry for entry in list_models() if entry.name == CATALOGUE[0].name)
    if default.state is ModelState.CACHED:
        return Check("model", Mark.GOOD, f"{default.name} in {default.path}")
    size = format_size(default.size_bytes)
    return Check(
        "model", Mark.NOTE, f"{default.name} is not here yet", f"The first run fetches {size}."
    )


def _grammars() -> Check:
    languages = parsed_languages()
    cutter = CodeCutter()
    missing = [one.name for one in languages if cutter.cut("\n", one).warning]
    if missing:
        found = f"missing for {', '.join(missing)}: cut by lines instead"
        return Check("grammars", Mark.NOTE, found, "Install kvcli again to get them.")
    return Check("grammars", Mark.GOOD, ", ".join(one.name for one in languages))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
