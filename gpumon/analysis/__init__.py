"""Judgments and computations that all views share: GPU states, epochs, ranks, progress, memory."""
