"""Screens above the main one."""
