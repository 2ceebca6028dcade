"""The browser view: Dash pages, routes for their data and for programs, and access control."""
