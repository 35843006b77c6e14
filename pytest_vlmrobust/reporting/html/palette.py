"""Palette: the colours that drawings are made with, each standing for a role that the style sheet gives its colours."""

from __future__ import annotations

ROLE_COLORS = {
    "ink": "#010101",
    "muted": "#020202",
    "grid": "#030303",
    "line": "#040404",
    "band": "#050505",
    "paper": "#060606",
    "bound": "#070707",
    "people": "#080808",
    "harm": "#090909",
    "help": "#0a0a0a",
    "fail": "#0b0b0b",
    "error": "#0c0c0c",
    "open": "#0d0d0d",
    "na": "#0e0e0e",
    "waived": "#0f0f0f",
    "pass": "#101010",
    "measured": "#111111",
}
"""Role to a colour that no drawing uses for anything else; the roles of verdicts are the CSS classes of their marks."""
ROLES = {color: role for role, color in ROLE_COLORS.items()}
