"""What all processes must have in common, with threads in place of processes."""

import pytest
from process_threads import MemoryStore, in_threads, processes_of

from estimax.core.errors import ClusterError
from estimax.parallel.agreement import Listed, require_equal


def errors_of(*settings, explain=None):
    """Compare settings, one for each process; return the message of each process."""
    hints = explain or [{}] * len(settings)

    def compare(one):
        try:
            require_equal(one, "s", settings[one.index], lambda: hints[one.index])
        except ClusterError as error:
            return str(error)

    return in_threads(processes_of(len(settings)), compare)


def test_equal_settings_take_one_exchange():
    store = MemoryStore()
    same = {"steps": "10", "words": Listed.of(["a", "b"])}
    in_threads(processes_of(3, store), lambda one: require_equal(one, "s", same))
    assert {key.split("/")[2] for key in store.values} == {"0"}  # the first round


def test_a_line_names_the_setting_the_processes_and_the_values():
    same = {"precision": "float32"}
    few, many = {**same, "max_steps": "10"}, {**same, "max_steps": "20"}
    first, *others = errors_of(few, many, few)
    assert others == [first, first]
    assert "precision" not in first
    assert (
        "\n  max_steps: 10 in chief (process 0 of 3), worker 1 (process 2 of 3); "
        "20 in worker 0 (process 1 of 3)\n"
    ) in first


def test_a_setting_that_one_process_lacks_is_named():
    message, _ = errors_of({"hooks": "none", "optimizer": "SGD"}, {"hooks": "none"})
    assert "optimizer: SGD in chief" in message
    assert "not there in worker 0" in message


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (["a", "b", "c"], ["a", "x", "c"], "item 2: b in chief"),
        (["a", "b"], ["a", "b", "c"], "item 3: none: there are 2 in chief"),
        ([b"a", b"\xff"], [b"a", b"\xfe"], "item 2: ? in chief"),
        (list(range(1000)), [*range(617), 0, *range(618, 1000)], "item 618: 617 in ch"),
    ],
)
def test_of_a_list_the_first_item_that_differs_is_shown(one, other, line):
    message, _ = errors_of({"words": Listed.of(one)}, {"words": Listed.of(other)})
    assert f"\n  words, {line}" in message


def test_of_a_long_text_the_part_that_differs_is_shown():
    one, other = (f"{'x' * 5000} rate={rate} {'y' * 5000}" for rate in (3, 4))
    message, _ = errors_of({"model": one}, {"model": other})
    assert "rate=3 yy" in message
    assert "rate=4 yy" in message
    assert len(message) < 1000


def test_hints_explain_a_program_and_are_no_difference_by_themselves():
    same, hints = {"program of a step": "a = 1"}, [{"rate": "1"}, {"rate": "2"}]
    assert errors_of(same, same, explain=hints) == [None, None]
    other = {"program of a step": "a = 2"}
    message, _ = errors_of(same, other, explain=hints)
    lines = message.splitlines()
    assert lines[1].startswith("  rate: 1 in chief")
    assert lines[2].startswith("  program of a step: a = 1 in chief")
