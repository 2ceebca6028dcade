"""The browser view. Not built yet."""
