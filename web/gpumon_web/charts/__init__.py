"""Charts as data that the scripts draw."""
