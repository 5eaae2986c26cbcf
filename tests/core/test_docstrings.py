"""Docstrings that take what they lack from another docstring."""

import inspect

import pytest

from estimax.core.docstrings import document_like


def source(path, size, depth=1):
    """Do it.

    Args:
      path: The file.
      size: The size in bytes,
        at least 1.
      depth: Not used by the functions below.

    Returns:
      A number.

    Example:
      >>> source("a", 1)
    """


def test_missing_entries_and_sections_are_taken_from_the_source():
    @document_like(source)
    def function(size, path):
        """Do the other thing.

        Args:
          path: The folder.
        """

    assert inspect.getdoc(function) == inspect.cleandoc(
        """Do the other thing.

        Args:
          size: The size in bytes,
            at least 1.
          path: The folder.

        Returns:
          A number.
        """
    )


def test_sections_of_the_docstring_replace_those_of_the_source():
    @document_like(source)
    def function(path):
        """Do it.

        Returns:
          A text.
        """

    assert inspect.getdoc(function).endswith("Returns:\n  A text.")


def test_methods_and_classes_are_documented_without_self():
    @document_like(source)
    class Documented:
        """A class."""

        def __init__(self, path):
            pass

        @document_like(source)
        def method(self, path):
            """Do it."""

    assert "Args:\n  path: The file." in inspect.getdoc(Documented)
    assert "Args:\n  path: The file." in inspect.getdoc(Documented.method)


def test_a_parameter_that_neither_docstring_explains_is_an_error():
    with pytest.raises(KeyError, match="colour"):

        @document_like(source)
        def function(colour):
            """Do it."""
