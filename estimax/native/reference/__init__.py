"""What the kernels compute, in NumPy and Python.

Used to check the kernels at first use, and in place of them with `ESTIMAX_NATIVE=off`.
"""
