"""The pages of the view: one module or package each, with a row in `keys.PAGE_CLASSES`."""
