"""Sources of values: drivers, recordings, simulations. To add one, add a package here and a row to `registry`."""
