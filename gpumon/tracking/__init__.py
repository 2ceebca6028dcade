"""Publishes the state of a training in a file, called its board. The daemon reads all boards."""
