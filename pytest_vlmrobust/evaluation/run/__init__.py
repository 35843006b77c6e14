"""Running: from a plan to answers with scores. Knows nothing of verdicts."""
