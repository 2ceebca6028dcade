"""SQLite files of the state directory: made, brought to this version, moved aside where damaged, read by others."""
