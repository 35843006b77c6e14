"""Work after a run: comparing, ranking, verifying and repeating it, from its evidence."""
