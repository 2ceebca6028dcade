"""Accounts of users: who held which GPU, how long it was busy or idle meanwhile, and its energy, by hour."""
