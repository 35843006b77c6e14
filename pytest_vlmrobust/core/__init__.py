"""The nouns of the project: plain values that all other layers use.

Reading a name costs nothing at pytest's start: pydantic is imported by :mod:`.conversion` when something is read.
"""
