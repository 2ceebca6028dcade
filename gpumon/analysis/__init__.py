"""Computes from frames what all views show: states of GPUs, epochs, ranks, progress and memory."""
