"""Accounts: how long each user held which GPU in each hour, how long it was busy or idle then, and its energy."""
