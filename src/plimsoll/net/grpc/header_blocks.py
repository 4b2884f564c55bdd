"""What a peer's header blocks mean: checked, and remembered.

A block of nothing but indexed fields does not change the dynamic table: what it means stays true until another kind of
block comes. After the first answers of a server nearly all its blocks are such.
"""

from __future__ import annotations

import re

import msgspec

from plimsoll.net.grpc.frames import PROTOCOL_ERROR, StreamFaultError
from plimsoll.net.grpc.hpack import Decoder

MAX_LIST_BYTES = 65_536  # of names and values, each field with 32 bytes more (RFC 9113, section 6.5.2)
_REMEMBERED = 64

REQUEST, RESPONSE, TRAILERS = "request", "response", "trailers"
_KINDS = {
    frozenset({":method", ":scheme", ":path"}): REQUEST,
    frozenset({":method", ":scheme", ":path", ":authority"}): REQUEST,
    frozenset({":status"}): RESPONSE,
    frozenset[str](): TRAILERS,
}
_NAME = re.compile(r"[!-9;-@\[-~]+")  # printable, no space, no capital, no colon
_OF_CONNECTIONS = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}


class Block(msgspec.Struct, frozen=True):
    kind: str
    fields: dict[str, str]


class BlockDecoder:
    def __init__(self) -> None:
        self._decoder = Decoder(MAX_LIST_BYTES)
        self._remembered: dict[bytes, Block] = {}

    def decoded(self, block: bytes) -> Block:
        """Raises ConnectionFaultError, as the table is lost, or StreamFaultError."""
        known = self._remembered.get(block)
        if known is not None:
            return known
        # All bytes below 0x80 begin, or continue, what is not an indexed field; 0xff is an index of several bytes.
        keeps_table = bool(block) and min(block) >= 0x80 and 0xFF not in block
        if not keeps_table or len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        found = _checked(self._decoder.decoded(block))
        if keeps_table:
            self._remembered[block] = found
        return found


def _checked(raw: list[tuple[bytes, bytes]]) -> Block:
    fields: dict[str, str] = {}
    pseudo: set[str] = set()
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("utf-8", "replace"), raw_value.decode("utf-8", "replace")
        if name.startswith(":"):
            if name in pseudo:
                raise _malformed(f"the header {name} twice")
            if len(pseudo) != len(fields):
                raise _malformed(f"the header {name} after others")
            pseudo.add(name)
        elif not _NAME.fullmatch(name):
            raise _malformed(f"the header name {name!r}")
        elif name in _OF_CONNECTIONS or (name == "te" and value != "trailers"):
            raise _malformed(f"the header {name}: {value}")
        if "\0" in value or "\n" in value or "\r" in value:
            raise _malformed(f"the header {name} with the value {value!r}")
        fields[name] = value
    kind = _KINDS.get(frozenset(pseudo))
    if kind is None:
        raise _malformed(f"the headers {', '.join(sorted(pseudo))} together")
    return Block(kind, fields)


def _malformed(what: str) -> StreamFaultError:
    """RFC 9113, section 8.1.1."""
    return StreamFaultError(PROTOCOL_ERROR, f"malformed: {what}")
