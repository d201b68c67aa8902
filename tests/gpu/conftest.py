"""What the tests of this room share."""

from __future__ import annotations

from engine_kit import one_thread as one_thread
