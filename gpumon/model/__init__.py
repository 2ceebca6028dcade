"""The data types and tables that every part of gpumon shares."""
