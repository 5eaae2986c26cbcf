"""Code that is compiled by Numba, behind functions that check their arguments.

The modules here are what other packages import. `kernels` has the compiled loops, and
`reference` the same in NumPy and Python. Only `kernels` imports Numba. `loading`
imports kernels at first use and compares them with the reference on a tiny case. The
reference is used if they differ or if `ESTIMAX_NATIVE=off` is set.
"""
