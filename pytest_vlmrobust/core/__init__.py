"""The nouns of the project: plain values that every other layer speaks in.

Reading a name costs nothing at pytest's start: pydantic is imported by :mod:`.conversion` when something is read.
"""
