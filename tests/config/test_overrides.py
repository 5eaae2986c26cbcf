"""`--set` with patterns means every key of the run file that can have the value."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text, problems

MORE = GOOD.replace(
    "  city: {type: hashed, buckets: 100}\n",
    "  city: {type: hashed, buckets: 100}\n"
    "  kind: {type: vocabulary, list: [a, b]}\n"
    "  size: {type: vocabulary, from_data: {}, oov_buckets: 1}\n",
).replace("of: [city]", "of: [city, kind, size]")


def test_a_star_means_the_features_that_have_the_key(tmp_path):
    run = load_text(tmp_path, MORE, "features.*.oov_buckets=3").run
    assert run.features["kind"].oov_buckets == 3
    assert run.features["size"].oov_buckets == 3
    assert run.features["city"].buckets == 100


def test_a_pattern_may_be_part_of_a_name_and_the_origin_is_the_option(tmp_path):
    loaded = load_text(
        tmp_path, MORE.replace("csv", "parquet"), "features.[ck]i*.many=true"
    )
    assert loaded.run.features["city"].many
    assert loaded.run.features["kind"].many
    assert not loaded.run.features["size"].many
    origin = str(loaded.origin("features.city.many"))
    assert origin == "--set features.[ck]i*.many=true"


def test_a_pattern_reaches_into_sources_and_lists(tmp_path):
    run = load_text(tmp_path, GOOD, "data.sources.*.batch_size=7").run
    assert run.data.sources["train"].batch_size == 7
    wide = MORE.replace("embedding: {", "embedding: [{").replace("size]}}", "size]}]}")
    run = load_text(tmp_path, wide, "model.dnn.features.embedding.*.dim=9").run
    assert [group.dim for group in run.model.dnn.features.embedding] == [9]


def test_a_pattern_without_a_match_is_an_error(tmp_path):
    (line,) = problems(tmp_path, GOOD, "features.x*.column=a")
    assert line == (
        "--set features.x*.column=a: features.x*.column: "
        "no value of the run file matches this pattern"
    )
    (line,) = problems(tmp_path, GOOD, "features.*.oov_buckets=1")
    assert "no value of the run file matches" in line
