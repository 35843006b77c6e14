"""Judging: from the answers of a cell or a sweep to a Record with its verdict."""
