"""The history of metrics. `query` defines queries; `recent` answers from the last frames, `tiers` from older data."""
