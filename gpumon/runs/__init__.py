"""Runs and epochs that are kept for ever: the ledger, and what is made of it.

`schema` is the table of tables; `keeper` (in the daemon) fills it; `ledger` reads it for reports,
comparison and views.
"""
