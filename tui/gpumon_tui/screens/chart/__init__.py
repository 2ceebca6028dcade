"""The chart page: one metric large, all GPUs as a heat strip, and small charts on the same time grid."""
