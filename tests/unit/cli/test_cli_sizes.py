from __future__ import annotations

import pytest

from engine.errors import ConfigError
from kvcli.sizes import format_about, format_clock, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        (4096, 4096),
        ("512MiB", 512 << 20),
        ("2GB", 2_000_000_000),
        ("1.5GiB", 3 << 29),
        ("4G", 4 << 30),
        ("10 kb", 10_000),
        ("7B", 7),
        (" 1TiB ", 1 << 40),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "12 potatoes", "-1", "1e9", "0", "0.1B", "9999PB", "1,5GB"]
)
def test_what_is_not_a_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="size") as caught:
        parse_size(text)
    assert text.strip() in caught.value.message


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (188_743_680, "189 MB"),
        (999_950, "1.0 MB"),
        (23_040_000_000, "23.0 GB"),
        (9_960, "10 kB"),
    ],
)
def test_sizes_are_written_with_two_to_three_digits(size: int, text: str) -> None:
    assert format_size(size) == text


def test_durations() -> None:
    assert [format_clock(s) for s in (0, 7.4, 750, 3723)] == ["0:00", "0:07", "12:30", "1:02:03"]
    assert [format_about(s) for s in (0, 45, 700, 12_600)] == [
        "about 1 s",
        "about 45 s",
        "about 12 min",
        "about 3.5 h",
    ]
