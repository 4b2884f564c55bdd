"""The field tables of the served kinds and the decoders that read objects by them.

The tables are texts in Python modules: `schema` explains the notation. They come with the byte code, so that reading
them is no I/O.
"""
