"""The past: `query` is the question, `recent` answers it from the last frames, `long` from older tiers too."""
