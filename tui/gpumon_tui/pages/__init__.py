"""The pages of the view: one module or package each, on the digits 1 to 5."""
