"""Drawing as pure functions: numbers in, lines of styled text out. No widget, no clock; state is handed in."""
