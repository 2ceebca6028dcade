"""Plotly figures as plain dictionaries, from records of the ledger: what a report holds and a browser draws."""
