"""A cluster that does not exist: any number of nodes, served by one process as `gpumon export` tells them."""
