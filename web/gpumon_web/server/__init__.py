"""The HTTP server: connections shared fairly, and slow clients."""
