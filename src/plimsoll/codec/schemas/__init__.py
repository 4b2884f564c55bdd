"""The field tables of the served kinds, as texts that `codec.schema` reads (its docstring explains the notation).

They are Python modules, not data files, so that a table comes with the byte code and reading it is no I/O.
"""
