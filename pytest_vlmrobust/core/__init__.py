"""The nouns of the project: plain values that every other layer speaks in.

Reading a name costs nothing at pytest's start: PyYAML is imported by :mod:`.document` alone, and pydantic by :mod:`.conversion`.
"""
