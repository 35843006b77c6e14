"""Exports: a run in the files that other programs read, one module for each kind of program."""
