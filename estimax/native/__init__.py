"""Everything that is compiled by Numba or called through addresses.

The modules here hold typed, checked functions. `kernels` holds the compiled loops
behind them, `reference` the same in NumPy. Only `kernels` imports Numba.
"""
