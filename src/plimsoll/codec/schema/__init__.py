"""The field tables of the served kinds and the decoders that use them.

The tables are texts in Python modules; `schema` explains the notation. They are loaded with the byte code, so reading
them is no I/O.
"""
