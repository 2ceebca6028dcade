"""Accounts: the time for which each user held each GPU, hour by hour, its busy and idle time, and its energy."""
