"""What the dashboard says, when it is shown, and that it gives the screen back."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console

from engine.telemetry import Link, LinkUse, Phase, Sample, Telemetry, TierUse
from engine.types import Tier
from kvcli import dashboard
from kvcli.dashboard import Dashboard, choose_mode
from kvcli.dashboard_view import Bar, live_panel
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.progress import History, Rates, closing_line, hits_and_misses, progress_line

MB = 1_000_000
SAMPLE = Sample(
    wall_s=10.0,
    seconds=dict.fromkeys(Phase, 0.0)
    | {Phase.IDLE: 0.1, Phase.COMPUTE: 9.7, Phase.READ: 0.15, Phase.WRITE: 0.05},
    tiers=(
        TierUse("device", 200 * MB, 150 * MB, 118, 4),
        TierUse("host", 100 * MB, 10 * MB, 8, 2),
        TierUse("disk", None, 188 * MB, 67, 0),
    ),
    total_pages=193,
    reuse=(700, 40, 3),
    hits={Tier.DEVICE: 900, Tier.HOST: 60, Tier.DISK: 40},
    links={
        Link.HOST_TO_DEVICE: LinkUse(9 * MB, 30, 0.02),
        Link.DISK_TO_HOST: LinkUse(3 * MB, 12, 0.2),
        Link.HOST_TO_DISK: LinkUse(188 * MB, 960, 1.5),
    },
    tokens_done=12_345,
    tokens_total=12_345,
    task="ingest",
    decoded_tokens=0,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def drawn(sample: Sample, width: int, history: History | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    history = history or History()
    with console.capture() as capture:
        console.print(live_panel(sample, history, history.add(sample), "tiny", width))
    return capture.get().splitlines()


def test_the_closing_line_says_tokens_pages_bytes_and_time() -> None:
    assert closing_line(SAMPLE) == (
        "12,345 tokens in 10.0 s (1,234 tok/s) · device 118 pages, host 8, disk 67 · "
        "read 3.0 MB, wrote 188 MB · compute 97% stall 2% idle 1%"
    )


def test_the_closing_line_of_an_answer_counts_its_tokens() -> None:
    assert closing_line(replace(SAMPLE, decoded_tokens=96)).startswith(
        "12,345 tokens and 96 new in 10.0 s · "
    )


def test_a_progress_line_before_anything_is_known_divides_by_nothing() -> None:
    empty = Telemetry().sample()
    assert progress_line(empty, Rates()) == "starting 0/0 tokens · read 0 B, wrote 0 B"


def test_a_miss_of_a_tier_is_a_hit_further_down() -> None:
    counts = [hits_and_misses(SAMPLE, use.name) for use in SAMPLE.tiers]
    assert counts == [(900, 100), (60, 40), (40, 0)]


def test_speeds_and_the_time_left_come_from_the_last_samples() -> None:
    history = History()
    first = replace(SAMPLE, wall_s=10.0, tokens_done=1000)
    assert history.add(first) == Rates()
    later = replace(first, wall_s=12.0, tokens_done=3000, read_bytes=4, written_bytes=10)
    rates = history.add(later)
    assert (rates.tokens, rates.read, rates.written) == (1000.0, 2.0, 5.0)
    assert rates.eta_s == pytest.approx((12_345 - 3000) / 1000)


def test_a_speed_is_steady_while_tokens_come_a_thousand_at_once() -> None:
    """Steps of 1,024 tokens every four seconds were shown as 0 and 533 tokens a second in turn."""
    history = History()
    start = replace(SAMPLE, wall_s=0.0, tokens_done=0, tokens_total=1_000_000)
    for tick in range(240):
        now = tick / 4
        done = int(now // 4) * 1024
        rates = history.add(replace(start, wall_s=now, tokens_done=done))
        if done >= 2048:
            assert rates.tokens == pytest.approx(256, rel=0.02)
            assert rates.eta_s == pytest.approx((1_000_000 - done) / 256, rel=0.02)
    stuck = history.add(replace(start, wall_s=now + 60, tokens_done=done))
    assert stuck.tokens < 100, "a run that has stopped must not look as if it went on"


def test_a_new_task_starts_its_speeds_afresh() -> None:
    """A second document starts at 0 tokens, which must not read as a negative speed."""
    history = History()
    history.add(SAMPLE)
    rates = history.add(replace(SAMPLE, task="answer", wall_s=11.0, tokens_done=0))
    assert rates == Rates()


@pytest.mark.parametrize("width", [80, 160])
def test_the_panel_fits_and_shows_every_tier(width: int) -> None:
    lines = drawn(SAMPLE, width)
    assert {len(line.rstrip()) for line in lines} == {width - 2}  # room for the echo of ^C
    assert len(lines) <= 10
    text = "\n".join(lines)
    for part in ("ingest · tiny", "12,345 / 12,345", "150 MB / 200 MB", "118 pages", "hit 90%",
                 "4 out", "193 in all", "compute 97%", "0:10 elapsed"):  # fmt: skip
        assert part in text, part
    assert "…" not in text


def test_the_wide_panel_counts_hits_and_misses() -> None:
    text = "\n".join(drawn(SAMPLE, 160))
    assert "900 hits" in text
    assert "100 misses" in text


def test_the_panel_draws_before_anything_is_known() -> None:
    assert "starting" in drawn(Telemetry().sample(), 80)[0]


@pytest.mark.parametrize("width", [10, 11, 60])
@pytest.mark.parametrize(
    "shares", [[], [0.0], [1.0], [0.5, 0.5], [0.001, 0.999], [0.9, 0.05, 0.05]]
)
def test_a_bar_is_as_wide_as_its_room(shares: list[float], width: int) -> None:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(Bar([(share, "") for share in shares]))
    assert len(capture.get().rstrip("\n")) == width


@pytest.mark.parametrize(
    ("shares", "start"), [([0.001, 0.999], "█▓"), ([0.98, 0.01, 0.01, 0.0], "█" * 18 + "▓▒")]
)
def test_a_tiny_share_is_still_seen(shares: list[float], start: str) -> None:
    console = Console(file=io.StringIO(), width=20, color_system=None)
    with console.capture() as capture:
        console.print(Bar([(share, "") for share in shares]))
    assert capture.get().startswith(start)


@pytest.mark.parametrize(
    ("asked", "terminal", "quiet", "mode"),
    [
        ("auto", True, False, "live"),
        ("auto", False, False, "line"),
        ("live", False, False, "line"),
        ("line", True, False, "line"),
        ("off", True, False, "off"),
        ("live", True, True, "off"),
    ],
)
def test_the_mode(asked, terminal: bool, quiet: bool, mode: str) -> None:
    options = RunOptions(dashboard=asked, quiet=quiet)
    output = Output(options, io.StringIO(), Terminal() if terminal else io.StringIO())
    assert choose_mode(options, output) == mode


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    options = RunOptions()
    assert choose_mode(options, Output(options, io.StringIO(), Terminal())) == "line"


def work(telemetry: Telemetry) -> None:
    telemetry.publish_tiers(SAMPLE.tiers, SAMPLE.total_pages)
    telemetry.publish_task("ingest", 50, 100)


def test_line_mode_prints_plain_lines_and_a_closing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "LINE_SECONDS", 0.02)
    options, telemetry = RunOptions(), Telemetry()
    out, err = io.StringIO(), io.StringIO()
    with Dashboard(telemetry, options, Output(options, out, err), "tiny"):
        work(telemetry)
        time.sleep(0.1)
    first, *_, last = err.getvalue().splitlines()
    assert first.startswith("ingest 50/100 tokens (50%)")
    assert last.startswith("50 tokens in ")
    assert ("\x1b" in err.getvalue(), out.getvalue()) == (False, "")


def test_quiet_shows_nothing() -> None:
    options, telemetry, err = RunOptions(quiet=True), Telemetry(), io.StringIO()
    with Dashboard(telemetry, options, Output(options, io.StringIO(), err), "tiny"):
        work(telemetry)
    assert err.getvalue() == ""


def test_off_still_closes_with_a_line() -> None:
    options, telemetry, err = RunOptions(dashboard="off"), Telemetry(), io.StringIO()
    with Dashboard(telemetry, options, Output(options, io.StringIO(), err), "tiny"):
        work(telemetry)
    assert len(err.getvalue().splitlines()) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_live_view_gives_the_cursor_back_whatever_happens(error: type[BaseException]) -> None:
    options, telemetry, err = RunOptions(), Telemetry(), Terminal()
    with (
        pytest.raises(error),
        Dashboard(telemetry, options, Output(options, io.StringIO(), err), "tiny"),
    ):
        work(telemetry)
        time.sleep(0.3)
        raise error
    text = err.getvalue()
    assert "device" in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    assert "\x1b[?1049h" not in text  # no alternate screen


def test_the_live_view_is_off_the_screen_while_an_answer_streams() -> None:
    screen = Terminal()
    options, telemetry = RunOptions(), Telemetry()
    with Dashboard(telemetry, options, Output(options, screen, screen), "tiny") as shown:
        work(telemetry)
        time.sleep(0.3)
        with shown.pause():
            before = len(screen.getvalue())
            time.sleep(0.4)
            during = screen.getvalue()[before:]
        time.sleep(0.3)
        after = screen.getvalue()[before:]
    assert during == ""
    assert "device" in after


def test_an_answer_that_goes_into_a_file_does_not_pause_the_view() -> None:
    err = Terminal()
    options, telemetry = RunOptions(), Telemetry()
    with Dashboard(telemetry, options, Output(options, io.StringIO(), err), "tiny") as shown:
        work(telemetry)
        with shown.pause():
            before, patience = len(err.getvalue()), time.monotonic() + 20
            while len(err.getvalue()) == before and time.monotonic() < patience:
                time.sleep(0.05)
            assert len(err.getvalue()) > before
