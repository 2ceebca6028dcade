"""The pages on keys 1 to 5, and the windows above them."""
