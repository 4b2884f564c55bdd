"""Protobuf: the wire format, a small struct codec, and the kinds that clients send as protobuf."""
