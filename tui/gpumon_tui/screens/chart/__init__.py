"""The chart page: one large metric, a heat strip of all GPUs, and small charts on the same time grid."""
