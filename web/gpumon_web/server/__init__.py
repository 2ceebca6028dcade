"""The HTTP server: fair sharing of connections, and protection against slow clients."""
