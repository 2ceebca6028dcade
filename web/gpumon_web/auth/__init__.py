"""Access control: tokens, sessions, rate limits and error answers."""
