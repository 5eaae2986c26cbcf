"""The words every room speaks: types, modes, errors, specs and state.

Nothing is re-exported: import the module (`from estimax.core import errors`), so that
a process which only reads a config or a bundle imports no more than it needs.
"""
