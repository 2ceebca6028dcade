"""Values of pages at each tick, and the stored part of each page."""
