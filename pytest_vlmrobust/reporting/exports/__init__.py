"""Exports: a run as files for other programs, a module for each kind of program."""
