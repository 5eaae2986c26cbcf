"""What the kernels compute, in NumPy and Python: the paths of `ESTIMAX_NATIVE=off`."""
