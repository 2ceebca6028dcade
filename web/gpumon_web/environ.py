"""The keys that our server adds to the WSGI environment of a request."""

from __future__ import annotations

TICK = "/api/delta"
"""The path of what each page asks once a second."""
JOB = "gpumon.job"
"""The answer that the request waited for, or None; without it the server cannot run a request again (`answers`)."""
CHANNEL = "gpumon.channel"
"""The `Channel` that the request came by."""
HEAD = "gpumon.head"
"""Its header lines as they came, without the request line."""
PEER = "gpumon.peer"
"""Peer of the connection, as `peers` knows it."""
