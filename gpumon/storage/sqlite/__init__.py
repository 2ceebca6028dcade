"""The SQLite files in the state directory. Only the daemon opens them for writing."""
