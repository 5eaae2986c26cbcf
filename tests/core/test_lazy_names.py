"""Packages import a name at its first use, and keep it."""

import pytest

import estimax
from estimax import export, feature_columns


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (estimax, "DNNClassifier"),
        (export, "write_bundle"),
        (feature_columns, "numeric_column"),
    ],
)
def test_a_name_stays_in_the_package_once_it_was_used(package, name):
    found = getattr(package, name)
    assert vars(package)[name] is found


@pytest.mark.parametrize("package", [estimax, export, feature_columns])
def test_a_name_that_a_package_does_not_have_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'"):
        package.nothing_like_it  # noqa: B018 - the access is the test
