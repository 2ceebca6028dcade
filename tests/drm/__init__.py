"""Folder trees that look like /sys, /proc and /dev of machines with AMD and Intel GPUs."""
