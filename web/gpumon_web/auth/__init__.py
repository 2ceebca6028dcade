"""Access control: who may see which page."""
