"""The browser view: Dash pages, one endpoint for live values, and the gate before both."""
