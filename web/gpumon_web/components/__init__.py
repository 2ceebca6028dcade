"""Parts of pages, as Dash components and as values that the scripts show."""
