import pytest

from estimax.storage import json_text


def test_nesting_is_bounded_wherever_it_is() -> None:
    most = json_text.MOST_LEVELS
    assert json_text.parse("[" * most + "]" * most)
    for levels in (most + 1, 200_000):
        for opened, closed in (("[", "]"), ('{"a":', "}")):
            deep = opened * levels + "1" + closed * levels
            with pytest.raises(ValueError, match="nested deeper than 100 levels"):
                json_text.parse(deep)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1, "a": 1}', b"\xff", "9" * 5000])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_text.parse(text)


@pytest.mark.parametrize("value", [-1, 2**63, 1.0, True, "1", None, [1]])
def test_a_whole_number_is_nothing_else(value: object) -> None:
    with pytest.raises(ValueError, match="size: expected a whole number"):
        json_text.whole({"size": value}, "size")


@pytest.mark.parametrize("value", [[-1], [2**70], ["2"], [True], 3, "34", [1] * 40])
def test_a_shape_is_a_list_of_sizes(value: object) -> None:
    with pytest.raises(ValueError, match="shape: expected a list of at most 32 sizes"):
        json_text.dimensions({"shape": value}, "shape")
