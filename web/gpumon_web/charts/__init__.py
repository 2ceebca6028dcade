"""Chart data that the scripts draw."""
