"""Parts of pages: Dash components, and the values that the scripts show in them."""
