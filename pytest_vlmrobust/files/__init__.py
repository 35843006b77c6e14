"""Files written by users and strangers: YAML and images, and the checks on them."""
