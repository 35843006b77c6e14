"""From a suite to verdicts: plan, evaluator, pipeline. Speaks the nouns of core and nothing of pytest."""
