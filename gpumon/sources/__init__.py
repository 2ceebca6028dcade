"""Where numbers come from. `registry` knows every source; to add one, a package here and a row there."""
