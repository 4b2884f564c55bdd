"""Header blocks: ours are read by hpack as they were meant, hpack's are read the same with and without our memory."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder, HPACKError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.net.grpc.frames import COMPRESSION_ERROR, PROTOCOL_ERROR, ConnectionFaultError, StreamFaultError
from plimsoll.net.grpc.header_blocks import MAX_LIST_BYTES, BlockDecoder
from plimsoll.net.grpc.hpack import NO_TABLE, encoded, huffman_decoded
from plimsoll.net.grpc.hpack import Decoder as OwnDecoder

NAMES = st.sampled_from(["grpc-status", "grpc-message", "content-type", "token", "te-x", "a" * 200])
VALUES = st.sampled_from(["0", "application/grpc", "trailers", "", "ünï", "x" * 127, "x" * 128, "y" * 5_000])
Headers = dict[str, str]
Damage = list[tuple[int, int, bytes]]
FIELDS = st.dictionaries(NAMES, VALUES, max_size=4)
PSEUDO = st.sampled_from(
    [
        {},
        {":status": "200"},
        {":status": "404"},
        {":method": "POST", ":scheme": "http", ":path": "/a.B/C", ":authority": "h:1"},
        {":method": "GET", ":scheme": "https", ":path": "/"},
    ]
)
HEADERS = st.builds(lambda pseudo, fields: pseudo | fields, PSEUDO, FIELDS)


def test_an_example_of_bytes() -> None:
    # RFC 7541: 6.1 indexed 3 and 6, 6.2.2 literals with the names 4 and 1, of 2 and 1 bytes
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "h")]
    assert encoded(fields) == bytes.fromhex("83 86 04 02 2f61 01 01 68")


@given(st.lists(HEADERS, max_size=5))
def test_our_blocks_need_no_table(sent: list[dict[str, str]]) -> None:
    decoder = Decoder()
    decoder.max_allowed_table_size = 0  # a peer that allows none
    for number, fields in enumerate(sent):
        block = encoded(fields.items())
        assert decoder.decode(NO_TABLE + block if number == 0 else block) == list(fields.items())


@given(st.lists(st.tuples(HEADERS, st.booleans()), max_size=12), st.integers(60, 400))
def test_blocks_of_others_mean_what_they_meant(sent: list[tuple[dict[str, str], bool]], size: int) -> None:
    """A small table forgets fields: a block must not be remembered longer."""
    encoder, decoder = Encoder(), BlockDecoder()
    for number, (fields, resizes) in enumerate(sent):
        if resizes:
            encoder.header_table_size = size + number
        assert decoder.decoded(encoder.encode(fields.items())).fields == fields


DAMAGE = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2), st.binary(max_size=3)), max_size=3)


@given(st.lists(st.tuples(FIELDS, st.sampled_from([None, 0, 50, 4_096]), DAMAGE), max_size=8))
def test_damaged_blocks_mean_the_same_to_hpack_or_nothing(sent: list[tuple[Headers, int | None, Damage]]) -> None:
    """Places of damage: where, how many bytes are lost, what is there instead."""
    encoder, own, other = Encoder(), OwnDecoder(MAX_LIST_BYTES), Decoder(MAX_LIST_BYTES)
    for fields, size, damage in sent:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(fields.items())
        for at, lost, instead in damage:
            block = block[:at] + instead + block[at + lost :]
        try:
            wanted = other.decode(block, raw=True)
        except HPACKError:
            with pytest.raises(ConnectionFaultError) as caught:
                own.decoded(block)
            assert caught.value.code == COMPRESSION_ERROR
            return
        assert own.decoded(block) == wanted


HUFFMAN = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.binary(max_size=120))
def test_huffman_codes(text: bytes) -> None:
    """Any bytes as the value of a literal."""
    coded, plain = HUFFMAN.encode(text), text.decode("utf-8", "replace")
    block = b"\0\1a" + bytes((0x80 | len(coded),) if len(coded) < 127 else (0xFF, *varint(len(coded) - 127))) + coded
    if set(text) & set(b"\0\r\n"):
        with pytest.raises(StreamFaultError, match="value"):
            BlockDecoder().decoded(block)
    else:
        assert BlockDecoder().decoded(block).fields == {"a": plain}


def varint(number: int) -> tuple[int, ...]:
    return (number,) if number < 128 else (number & 127 | 128, *varint(number >> 7))


def test_every_symbol() -> None:
    for symbol in range(256):
        coded = HUFFMAN.encode(bytes((symbol,)) * 3)
        assert huffman_decoded(coded) == bytes((symbol,)) * 3


def test_the_static_table() -> None:
    """Appendix A: every index that stands for a whole field, and every name."""
    theirs = Decoder()
    for index in range(1, 62):
        block = bytes((0x40 | index,)) + b"\1x"
        name = bytes(theirs.decode(block, raw=True)[0][0]).decode()
        found = OwnDecoder(MAX_LIST_BYTES)
        assert found.decoded(block) == [(name.encode(), b"x")]
        assert found.decoded(bytes((0x80 | index,))) == [tuple(Decoder().decode(bytes((0x80 | index,)), raw=True)[0])]


def test_an_index_means_another_field_after_the_table_has_changed() -> None:
    decoder = BlockDecoder()
    decoder.decoded(bytes.fromhex("40 01 61 01 31"))  # a: 1 into the table, index 62
    assert decoder.decoded(b"\xbe").fields == {"a": "1"}
    assert decoder.decoded(b"\xbe").fields == {"a": "1"}
    decoder.decoded(bytes.fromhex("40 01 62 01 32"))
    assert decoder.decoded(b"\xbe").fields == {"b": "2"}


MALFORMED = [
    pytest.param([("Token", "x")], "'Token'", id="8.2.1 upper case"),
    pytest.param([("a b", "x")], "'a b'", id="8.2.1 a space"),
    pytest.param([("", "x")], "name ''", id="8.2.1 no name"),
    pytest.param([("a", "x\r\ny")], "value", id="8.2.1 a line break"),
    pytest.param([("a", "\0")], "value", id="8.2.1 a zero"),
    pytest.param([("connection", "close")], "connection: close", id="8.2.2 of connections"),
    pytest.param([("te", "gzip")], "te: gzip", id="8.2.2 te"),
    pytest.param([("a", "b"), (":status", "200")], ":status after others", id="8.3 pseudo after others"),
    pytest.param([(":status", "200"), (":status", "200")], ":status twice", id="8.3 twice"),
    pytest.param([(":status", "200"), (":path", "/")], ":path, :status together", id="8.3 mixed"),
    pytest.param([(":method", "POST")], ":method together", id="8.3.1 incomplete"),
    pytest.param([(":what", "x")], ":what together", id="8.3 unknown"),
]


@pytest.mark.parametrize(("fields", "text"), MALFORMED)
def test_malformed_headers_end_their_stream(fields: list[tuple[str, str]], text: str) -> None:
    with pytest.raises(StreamFaultError, match=text) as caught:
        BlockDecoder().decoded(encoded(fields))
    assert caught.value.code == PROTOCOL_ERROR


UNDECODABLE = [
    pytest.param("80", id="7541 6.1 index 0"),
    pytest.param("be", id="7541 2.3.3 an empty place of the table"),
    pytest.param("00 05 61", id="7541 5.2 cut"),
    pytest.param("3f ff ff ff 0f", id="7541 4.2 a larger table than ours"),
    pytest.param("88 20", id="7541 4.2 a resized table after a field"),
    pytest.param("00 81 00 00", id="7541 5.2 bits after a code that are not ones"),
    pytest.param("00 81 ff 00", id="7541 5.2 a byte of nothing but bits after a code"),
    pytest.param("00 84 ff ff ff ff 00", id="7541 5.2 the code of the end"),
    pytest.param("40 01", id="7541 6.2.1 no name"),
    pytest.param("ff ff ff ff ff", id="7541 5.1 an endless number"),
]


@pytest.mark.parametrize("block", UNDECODABLE)
def test_blocks_that_cannot_be_decoded_end_the_connection(block: str) -> None:
    with pytest.raises(ConnectionFaultError, match="cannot be decoded") as caught:
        BlockDecoder().decoded(bytes.fromhex(block))
    assert caught.value.code == COMPRESSION_ERROR


def test_a_few_bytes_that_mean_many() -> None:
    """One long value in the table, named again and again."""
    bomb = encoded([("a", "x" * 3_000)]).replace(b"\0", b"\x40", 1) + b"\xbe" * (MAX_LIST_BYTES // 3_000)
    with pytest.raises(ConnectionFaultError, match=f"more than {MAX_LIST_BYTES} bytes"):
        BlockDecoder().decoded(bomb)
