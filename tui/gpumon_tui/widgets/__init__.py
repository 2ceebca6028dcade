"""One widget for each part of the screen; each turns a `View` into lines."""
