"""Zip archives and XML by people who mean harm: opened within limits, or not at all.

Owns the limits on entries and their unpacked size, and an XML parser without entities. Knows no
format that is made of them.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import BinaryIO
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from .reading import NotRead
from .spans import SkipReason

_MAX_ENTRIES = 20_000
_MAX_ENTRY_BYTES = 64 << 20
_MAX_TOTAL_BYTES = 1 << 30
"""Pictures and fonts included, which are never unpacked."""
_MAX_DEPTH = 500
_ENCRYPTED_FLAG = 0x1


class Archive:
    """A zip archive whose entries are read one by one.

    Raises:
        NotRead: It is damaged, encrypted, or unpacks to more than the limits.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
            entries = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
            raise NotRead(SkipReason.DAMAGED, "damaged: not a whole zip archive") from error
        if any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries):
            raise NotRead(SkipReason.ENCRYPTED, "its zip archive is encrypted")
        unpacked = sum(entry.file_size for entry in entries)
        if len(entries) > _MAX_ENTRIES or unpacked > _MAX_TOTAL_BYTES:
            told = f"{len(entries):,} entries of {unpacked:,} bytes: more than a document has"
            raise NotRead(SkipReason.DAMAGED, told)
        self.names = frozenset(entry.filename for entry in entries)

    def read(self, name: str) -> bytes:
        """Unpack an entry.

        Raises:
            NotRead: It is missing, damaged, or larger than the limit.
        """
        try:
            size = self._zip.getinfo(name).file_size
            if size > _MAX_ENTRY_BYTES:
                raise NotRead(SkipReason.DAMAGED, f"'{name}' unpacks to {size:,} bytes")
            with self._zip.open(name) as entry:
                # zipfile stops at the size that the entry claims, however much it unpacks to
                return entry.read()
        except KeyError as error:
            raise NotRead(SkipReason.DAMAGED, f"damaged: '{name}' is missing") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
            raise NotRead(SkipReason.DAMAGED, f"damaged: '{name}' does not unpack") from error


def parse_xml(data: bytes, what: str) -> Element:
    """A document without namespaces: names are local ones. Nothing is fetched or expanded.

    Raises:
        NotRead: It is not well-formed, declares entities, or is nested too deeply.
    """
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise NotRead(SkipReason.DAMAGED, f"damaged: {what} is nested too deeply")
        builder.start(_local(name), {_local(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_local(name))

    def refuse_entities(*_: object) -> None:
        raise NotRead(SkipReason.DAMAGED, f"{what} declares entities, which no document needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse_entities
    try:
        parser.Parse(data, True)
        return builder.close()
    except (expat.ExpatError, AssertionError, LookupError, ValueError) as error:
        raise NotRead(SkipReason.DAMAGED, f"damaged: {what} is not XML ({error})") from error


def _local(name: str) -> str:
    return name.rpartition("}")[2]
