"""What the tests of this room share."""

from __future__ import annotations

from child_kit import spawn as spawn
from child_kit import terminal as terminal
from cli_kit import book as book
from cli_kit import kvcli as kvcli
from cli_kit import long_model as long_model
from cli_kit import long_notes as long_notes
from cli_kit import notes as notes
from cli_kit import session as session
from cli_kit import tiny_model as tiny_model
from cli_kit import tool as tool
from engine_kit import one_thread as one_thread
