"""Pictures of the overview, the header and the footer, each for a room of so many cells: drawn without Textual."""
