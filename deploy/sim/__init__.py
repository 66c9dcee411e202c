"""A simulated federation of N silos, by processes or by containers."""
