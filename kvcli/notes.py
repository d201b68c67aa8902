"""What kvcli keeps in a session file beside the pages: turns, sources, neutral mass, section notes.

Owns the notes' keys. The session file stores them without looking inside.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.errors import SessionError
from kvcli.ingest_settings import IngestSettings


@dataclass(frozen=True, slots=True)
class SectionNote:
    """What was written about tokens `[first_token, end_token)` on the way to a summary."""

    first_token: int
    end_token: int
    text: str

    def to_json(self) -> dict[str, object]:
        """A compact dict."""
        return {"at": self.first_token, "end": self.end_token, "text": self.text}


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was typed to name the documents, so that they can be looked for again."""

    folder: str
    """The working folder of then: paths are relative to it, and shown as they were typed."""
    paths: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    max_file_size: int
    """Bytes."""

    def to_json(self) -> dict[str, object]:
        """A dict, all of it JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Inputs:
        """The inverse of `to_json`; raises what a wrong shape raises."""
        return cls(
            str(fields["folder"]),
            tuple(map(str, fields["paths"])),
            tuple(map(str, fields["include"])),
            tuple(map(str, fields["exclude"])),
            int(fields["max_file_size"]),
        )


@dataclass(frozen=True, slots=True)
class Notes:
    """State of a conversation."""

    model: str
    """What finds the model again from any folder: a name, a hub id or an absolute path."""
    sources: tuple[str, ...]
    """Paths of the documents, in order."""
    mode: str
    turns: int
    """Questions put so far."""
    document_tokens: int
    """Leading tokens that are documents; questions come behind them."""
    neutral: Tensor | None
    """Attention mass of a neutral question, `[layers, num_heads, num_pages]`, in steps of fp16."""
    lookup_layers: tuple[int, ...] = ()
    """Layers that the neutral mass and the key sketch are of; empty: those that depth tells."""
    inputs: Inputs | None = None
    """Where the documents are from; None in sessions of earlier versions."""
    sections: tuple[SectionNote, ...] = ()
    """Notes on sections, in the order in which they were made."""
    exact_tokens: int = 0
    """In focus: leading tokens that were attended to exactly, before the chat outgrew the window.
    What was computed anew since may be other tokens of them."""
    settings: IngestSettings = field(default_factory=IngestSettings)
    """How the tokens were read."""

    def to_json(self) -> dict[str, object]:
        """The notes as the session file takes them."""
        fields: dict[str, object] = {
            "model": self.model,
            "sources": list(self.sources),
            "mode": self.mode,
            "turns": self.turns,
            "document_tokens": self.document_tokens,
            "settings": self.settings.to_json(),
        }
        if self.neutral is not None:
            data = self.neutral.numpy().astype(np.float16).tobytes()
            fields["neutral"] = {
                "shape": list(self.neutral.shape),
                "float16": base64.b64encode(data).decode("ascii"),
            }
        if self.lookup_layers:
            fields["lookup_layers"] = list(self.lookup_layers)
        if self.inputs is not None:
            fields["inputs"] = self.inputs.to_json()
        if self.sections:
            fields["sections"] = [note.to_json() for note in self.sections]
        if self.exact_tokens:
            fields["exact_tokens"] = self.exact_tokens
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Notes:
        """The inverse of `to_json`.

        Raises:
            SessionError: A note is missing or malformed.
        """
        try:
            return cls(
                model=str(fields["model"]),
                sources=tuple(str(source) for source in fields["sources"]),
                mode=str(fields["mode"]),
                turns=int(fields["turns"]),
                document_tokens=int(fields["document_tokens"]),
                neutral=_tensor(fields["neutral"]) if "neutral" in fields else None,
                lookup_layers=tuple(int(layer) for layer in fields.get("lookup_layers", ())),
                inputs=Inputs.from_json(fields["inputs"]) if "inputs" in fields else None,
                sections=tuple(
                    SectionNote(int(note["at"]), int(note["end"]), str(note["text"]))
                    for note in fields.get("sections", ())
                ),
                exact_tokens=int(fields.get("exact_tokens", 0)),
                settings=IngestSettings.from_json(fields.get("settings", {})),
            )
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise SessionError(
                f"the session's notes are unusable: {type(error).__name__} {error}",
                "Ingest the documents again.",
            ) from error


def _tensor(value: Mapping[str, Any]) -> Tensor:
    data = np.frombuffer(base64.b64decode(value["float16"]), np.float16)
    return torch.from_numpy(data.astype(np.float32)).view([int(size) for size in value["shape"]])
