"""The past: `query` is the question, `recent` answers it from the last frames; longer tiers answer it too."""
