"""Power: how likely policies decide about models whose true behaviour is known."""
