"""Judging: from the answers of a cell, a sweep or a family to a Record with its verdict."""
