"""What a notebook shows of a dataset: its text and its first rows."""

import re

import numpy as np

from estimax.input import Dataset, csv_files

AGES = np.arange(10, dtype=np.int64)
CITIES = np.array(["Rome", "<b>"] * 5)


def cells(dataset):
    """Return the rows of the table that a notebook shows, headings first."""
    page = dataset._repr_html_()
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]


def people():
    return Dataset.from_tensor_slices(({"age": AGES, "city": CITIES}, AGES % 2))


def test_the_first_five_rows_have_the_names_of_features_and_the_label():
    assert cells(people()) == [
        ["age", "city", "label"],
        ["0", "Rome", "0"],
        ["1", "&lt;b&gt;", "1"],
        ["2", "Rome", "0"],
        ["3", "&lt;b&gt;", "1"],
        ["4", "Rome", "0"],
    ]


def test_batches_show_their_first_rows():
    assert len(cells(people().shuffle(10).repeat().batch(2).prefetch(1))) == 1 + 2


def test_a_cache_in_files_is_not_written(tmp_path):
    cells(people().batch(4).cache(str(tmp_path / "cache")))
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_shown_instead_of_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    dataset = csv_files(path)
    path.unlink()
    page = dataset._repr_html_()
    assert cells(dataset) == []
    assert str(path) in page


def test_no_rows_are_said():
    assert "no rows" in Dataset.range(0)._repr_html_()
    assert "no rows" in Dataset.range(0).batch(2)._repr_html_()


def test_showing_a_dataset_does_not_change_its_order():
    dataset = people().shuffle(10, seed=1)
    twin = people().shuffle(10, seed=1)
    dataset._repr_html_()
    first, second = (
        [int(features["age"]) for features, _ in one] for one in (dataset, twin)
    )
    assert first == second
