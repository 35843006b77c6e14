"""The nouns of the project: plain values that every other layer speaks in.

Only the standard library is imported here, so that reading a name costs nothing at pytest's start.
"""
