"""The one error tree of kvcli. Everything a user can cause or meet is one of these.

    KVError                     exit 1   the root; carries `advice`, one sentence on what to do
    ├── ConfigError             exit 2   an option or a combination of options makes no sense
    ├── NothingReadable         exit 3   no input could be read (all scanned, all skipped)
    ├── OverBudget              exit 4   does not fit a budget or the window; before any compute
    ├── SessionError            exit 5   a session file cannot be used
    │   ├── NotASession                  foreign bytes, or truncated before its first commit
    │   ├── UnsupportedVersion           written by a newer kvcli
    │   ├── IdentityMismatch             other model, tokenizer, dtype, ...: names the field
    │   ├── PageCorrupt                  bytes that fail their checksum; never served
    │   ├── AttachmentCorrupt            the same of bytes beside the KV; done without
    │   ├── SessionLocked                another process is writing it
    │   ├── BaseMissing                  the session that a fork shares pages with is not there
    │   └── BaseNeeded                   a fork needs its pages, so it must stay as it is
    ├── ModelError              exit 1   a model cannot be found, fetched or loaded
    │   ├── ModelRefused                 an architecture that position-free pages cannot serve
    │   └── NonFiniteKV                  it computed keys or values that are no numbers
    ├── StorageError            exit 1   the device under a file failed: full, read-only, gone, slow
    └── PartialInput            exit 6   something was skipped and --strict was given

A miss is a result, not an error. `assert` marks our own bugs; these mark the caller's, the
file's or the device's.
"""

from __future__ import annotations


class KVError(Exception):
    """Root of the tree.

    Args:
        message: One line, no trailing full stop, names the thing that failed.
        advice: What to do next, one sentence, or empty.
    """

    exit_code = 1

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class ConfigError(KVError):
    """An option or a combination of options makes no sense."""

    exit_code = 2


class NothingReadable(KVError):
    """No input could be read."""

    exit_code = 3


class OverBudget(KVError):
    """Does not fit a memory budget or the model's window; raised before any compute."""

    exit_code = 4


class SessionError(KVError):
    """A session file cannot be used."""

    exit_code = 5


class NotASession(SessionError):
    """The file is foreign, or was cut before its first commit."""


class UnsupportedVersion(SessionError):
    """The file was written in a format this kvcli does not read."""


class IdentityMismatch(SessionError):
    """The file belongs to another model, tokenizer, dtype or page size."""


class PageCorrupt(SessionError):
    """Bytes failed their checksum. They are never served."""


class AttachmentCorrupt(SessionError):
    """Bytes that are kept beside the KV failed their checksum. They are done without."""


class SessionLocked(SessionError):
    """Another process holds the file for writing."""


class BaseMissing(SessionError):
    """The session that a fork shares pages with is not there, or is another one."""


class BaseNeeded(SessionError):
    """Forks need the pages of a session: it can be neither removed nor written anew."""


class ModelError(KVError):
    """A model cannot be found, fetched or loaded."""


class ModelRefused(ModelError):
    """The architecture cannot be served from position-free pages; the message names the reason."""


class NonFiniteKV(ModelError):
    """The model, or the device under it, computed keys or values that are no numbers."""


class StorageError(KVError):
    """A file's device failed: full, read-only, gone or too slow."""


class PartialInput(KVError):
    """Something was skipped and the user asked for everything."""

    exit_code = 6
