"""Types that all packages use: errors, specs, state, strings, sparse and raw values.

Nothing is re-exported. Import the module (`from estimax.core import errors`), so that a
process that only reads a config or a bundle imports no more than it needs.
"""
