"""Accounts are the held, busy and idle time and the energy of each user on each GPU, hour by hour."""
