"""What the dashboard says, when it is shown, and that it gives the screen back."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace

import pytest
from rich.console import Console
from rich.live import Live

from engine.telemetry import (
    Link,
    LinkUse,
    MapCell,
    Phase,
    PrefetchCounts,
    ResidencyMap,
    Sample,
    Telemetry,
    TierUse,
)
from engine.types import Tier
from kvcli import dashboard
from kvcli.dashboard import Dashboard, choose_mode
from kvcli.dashboard_marks import Bar
from kvcli.dashboard_view import LivePanel, strip_columns
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.progress import (
    History,
    LinkRate,
    Rates,
    closing_line,
    format_count,
    hits_and_misses,
    progress_line,
)
from kvcli.sizes import format_size

MB, GB = 10**6, 10**9
SAMPLE = Sample(
    wall_s=10.0,
    seconds=dict.fromkeys(Phase, 0.0)
    | {Phase.IDLE: 0.1, Phase.COMPUTE: 9.7, Phase.READ: 0.15, Phase.WRITE: 0.05},
    tiers=(
        TierUse("device", 200 * MB, 150 * MB, 118, 4, hot_pages=59, hot_bytes=75 * MB),
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
    prefetch=PrefetchCounts(issued=9, useful=7, late=1, wasted=1),
    read_ahead=PrefetchCounts(issued=30, useful=30, late=4),
    major_faults=2,
    tokens_done=12_345,
    tokens_total=12_345,
    task="ingest",
    decoded_tokens=0,
)


READ = Link.DISK_TO_HOST


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


HUGE = replace(
    SAMPLE,
    wall_s=400_000.0,
    tiers=(
        TierUse("device", 99 * GB, 98 * GB, 99_999_999, 99_999_999, 99_999_999, 98 * GB),
        TierUse("host", 999 * GB, 998 * GB, 99_999_999, 99_999_999, 1, 1000),
        TierUse("disk", None, 99_999 * GB, 99_999_999, 0),
    ),
    total_pages=299_999_997,
    links=dict.fromkeys(Link, LinkUse(99_999 * GB, 10**9, 399_999.0)),
    tokens_done=987_654_321,
    tokens_total=1_234_567_890,
)
"""More than any machine has: every figure is as long as it can be."""


def map_of(columns: int) -> ResidencyMap:
    """Sinks and the end on the device, something in the host tier, all else on disk."""
    cells = [MapCell(Tier.DISK, False)] * columns
    cells[0] = cells[-1] = MapCell(Tier.DEVICE, True)
    cells[columns // 2] = MapCell(Tier.HOST, False)
    return ResidencyMap(tuple(cells), 34 * columns)


def drawn(
    sample: Sample,
    width: int,
    history: History | None = None,
    *,
    limits: dict[Link, float] | None = None,
    encoding: str = "utf-8",
) -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    console = Console(file=file, width=width, color_system=None, legacy_windows=False)
    history = history or History()
    rates, shown = history.add(sample), map_of(strip_columns(width))
    console.print(LivePanel(sample, history, rates, "tiny", shown, limits or {}))
    return file.buffer.getvalue().decode(encoding).splitlines()


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
    before = history.add(first)
    assert (before.tokens, before.eta_s) == (0.0, None)
    later = replace(first, wall_s=12.0, tokens_done=3000)
    rates = history.add(later)
    assert rates.tokens == 1000.0
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
    assert (rates.tokens, rates.eta_s) == (0.0, None)


def reading(history: History, sums: list[tuple[float, int, float]]) -> LinkRate:
    """Feed samples of when, bytes read and seconds busy so far; gives the last rate."""
    for at, num_bytes, busy in sums:
        use = LinkUse(num_bytes, 1, busy)
        rates = history.add(replace(SAMPLE, wall_s=at, links=SAMPLE.links | {READ: use}))
    return rates.links[READ]


def test_a_links_rate_is_that_of_now_and_its_peak_that_of_a_second() -> None:
    """A burst of 600 bytes in half a second is 600 a second, not 1,200."""
    history = History()
    peak = reading(history, [(0.0, 0, 0), (0.5, 0, 0), (1.0, 600, 0.25), (1.5, 600, 0.25)])
    assert peak.peak == 600
    quiet = reading(history, [(at, 600, 0.25) for at in (2.0, 2.5, 3.0, 3.5)])
    assert quiet == LinkRate(now=0.0, peak=600, when_busy=2400, busy=0.0)


def test_a_link_that_never_moved_has_no_speed() -> None:
    assert reading(History(), [(0.0, 0, 0), (1.0, 0, 0)]) == LinkRate()


def test_another_task_does_not_forget_the_links() -> None:
    history = History()
    reading(history, [(0.0, 0, 0), (1.0, 500, 1)])
    use = LinkUse(500, 1, 1.0)
    rates = history.add(
        replace(SAMPLE, wall_s=2.0, task="answer", links=SAMPLE.links | {READ: use})
    )
    assert rates.links[READ].peak == 500


def test_a_curve_says_how_fast_a_sum_grew_in_each_column() -> None:
    """Nothing is known of the first twenty seconds."""
    history = History()
    for at in range(20, 61):
        history.add(replace(SAMPLE, wall_s=float(at), decoded_tokens=max(0, at - 40) * 5))
    grown = history.growth(lambda sample: sample.decoded_tokens, 6)
    assert grown == [None, None, 0.0, 0.0, pytest.approx(5.0), pytest.approx(5.0)]


def test_samples_of_a_minute_are_kept_however_often_they_come() -> None:
    history = History()
    for tick in range(20_000):
        history.add(replace(SAMPLE, wall_s=tick / 100))
    assert 60 <= history.samples[-1].wall_s - history.samples[0].wall_s <= 61
    assert len(history.samples) < 400


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("sample", [SAMPLE, HUGE], ids=["usual", "huge"])
@pytest.mark.parametrize("width", [80, 120, 160, 200])
def test_the_panel_fits_and_nothing_is_cut(width: int, sample: Sample, encoding: str) -> None:
    lines = drawn(sample, width, encoding=encoding)
    assert {len(line.rstrip()) for line in lines} == {width - 2}  # room for the echo of ^C
    assert len(lines) <= 22, "a terminal has 24"
    text = "\n".join(lines)
    most = [format_size(use.used_bytes) for use in sample.tiers]
    for figure in (*most, format_count(sample.tiers[0].pages), f"{sample.total_pages:,} pages"):
        assert figure in text, figure
    assert f"{sample.tokens_done:,} / {sample.tokens_total:,}" in text
    assert "…" not in text
    for head in ("used", "pages", "hit", "out", "now", "peak", "when busy", "moved", "in all",
                 "share", "read", "write", "commit", "decode", "lock"):  # fmt: skip
        assert head in text, head


@pytest.mark.parametrize("width", [80, 160])
def test_the_panel_says_what_the_sample_does(width: int) -> None:
    text = "\n".join(drawn(SAMPLE, width))
    for part in ("ingest · tiny", "12,345 / 12,345", "100%", "150 MB / 200 MB", "118  50%  90%",
                 "193 pages", "0:10 elapsed", "9.7 s   97%", "0.2 s  2.0%", "188 MB",
                 "1.5%", "0.5%", "cell = fastest of 34 pages"):  # fmt: skip
        assert part in text, part


def test_the_strip_runs_along_the_document() -> None:
    lines = drawn(SAMPLE, 80)
    (where,) = (line for line in lines if "where" in line)
    (hot,) = (line for line in lines if line.startswith("│ hot"))
    assert where.strip("│ ").removeprefix("where").strip() == "█" + "▁" * 30 + "▄" + "▁" * 29 + "█"
    assert hot[14] == hot[75] == "•" and hot.count("•") == 2


def test_a_measured_limit_shows_what_is_left_of_it() -> None:
    history = History()
    history.add(replace(SAMPLE, wall_s=8.0, links=dict.fromkeys(Link, LinkUse())))
    text = "\n".join(drawn(SAMPLE, 80, history, limits={Link.HOST_TO_DISK: 188 * MB}))
    assert "of max" in text
    assert re.search(r"host→disk .* 94.0 MB/s +50%", text) or "94 MB/s    50%" in text


@pytest.mark.parametrize("width", [40, 60, 79])
def test_a_narrow_terminal_loses_columns_not_lines(width: int) -> None:
    lines = drawn(SAMPLE, width)
    assert {len(line.rstrip()) for line in lines} == {width - 2}
    assert len(lines) == len(drawn(SAMPLE, 80))


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
        patience = time.monotonic() + 20
        while "device" not in screen.getvalue()[before:] and time.monotonic() < patience:
            time.sleep(0.05)
        after = screen.getvalue()[before:]
    assert during == ""
    assert "device" in after


def test_the_live_view_stays_until_an_answer_has_words() -> None:
    """A question to a million tokens: the probe took ten seconds, and the screen showed nothing."""
    screen = Terminal()
    options, telemetry = RunOptions(), Telemetry()
    with Dashboard(telemetry, options, Output(options, screen, screen), "tiny") as shown:
        work(telemetry)
        with shown.give_way(screen.write) as on_text:
            on_text("")
            before, patience = len(screen.getvalue()), time.monotonic() + 20
            while "device" not in screen.getvalue()[before:] and time.monotonic() < patience:
                time.sleep(0.05)
            assert "device" in screen.getvalue()[before:]
            on_text("Forty-")
            on_text("two.")
            said = screen.getvalue().index("Forty-")
            time.sleep(0.4)
            assert screen.getvalue()[said:] == "Forty-two."
        assert shown._painter is not None


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


def test_frames_that_cost_much_are_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever draws holds the interpreter while the model waits for it: on a slow machine four
    frames a second took a tenth of the speed of decoding."""
    costs, waits, clock = iter([0.001, 0.05, 0.0]), [], [0.0]

    def draw(self: Live, *, refresh: bool = False) -> None:
        clock[0] += next(costs)

    class Stopping:
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return len(waits) > 3

    output = Output(RunOptions(), io.StringIO(), Terminal())
    view = Dashboard(Telemetry(), RunOptions(), output, "tiny")
    view._live, view._stopping = Live(auto_refresh=False), Stopping()
    monkeypatch.setattr(Live, "refresh", draw)
    monkeypatch.setattr(dashboard.time, "thread_time", lambda: clock[0])
    view._draw_frames()
    assert waits == pytest.approx([0.25, 0.25, 5.0, 0.25])
