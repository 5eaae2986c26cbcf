import pytest

from estimax.core.errors import InputError
from estimax.formats import messages


def test_sequence_examples_come_back_as_they_were():
    context = {"user": ("bytes_list", [b"ann"]), "none": (None, [])}
    lists = {"n": [("int64_list", [1, -1]), ("int64_list", [])], "empty": []}
    data = messages.encode_sequence_example(context, lists)
    assert messages.decode_sequence_example(data) == (context, lists)


def test_the_range_of_int64_survives():
    values = [0, -1, 2**63 - 1, -(2**63)]
    data = messages.encode_example({"n": ("int64_list", values)})
    assert messages.decode_example(data) == {"n": ("int64_list", values)}


@pytest.mark.parametrize("data", [b"\x0a\x05", b"\xff" * 11, b"\x0b", b"\x02\x00"])
def test_broken_messages_are_refused(data):
    with pytest.raises(InputError, match="not a valid Example"):
        messages.decode_example(data)
