"""The routes that the pages ask."""
