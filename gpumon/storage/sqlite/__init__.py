"""SQLite files of the state directory: made, moved aside where damaged or of another version, read by others."""
