"""Costs of GPU time and energy, by the prices of the settings file."""
