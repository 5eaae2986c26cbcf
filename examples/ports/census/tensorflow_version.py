"""Who earns more than 50K? A wide-and-deep model, as written for tf.estimator 1.x.

    python examples/ports/census/people.py train.csv
    python examples/ports/census/people.py test.csv --seed 2
    python examples/ports/census/tensorflow_version.py train.csv test.csv

Needs TensorFlow 2.15 or older. `estimax_version.py` is the same program for estimax.
"""

import argparse

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

CSV_COLUMNS = [
    *["age", "workclass", "fnlwgt", "education", "education_num", "marital_status"],
    *["occupation", "relationship", "race", "gender", "capital_gain", "capital_loss"],
    *["hours_per_week", "native_country", "income_bracket"],
]
CSV_COLUMN_DEFAULTS = [
    *[[0], [""], [0], [""], [0], [""], [""], [""], [""], [""]],
    *[[0], [0], [0], [""], [""]],
]


def build_model_columns():
    """Return the wide columns and the deep columns."""
    fc = tf.feature_column
    age = fc.numeric_column("age")
    education_num = fc.numeric_column("education_num")
    capital_gain = fc.numeric_column("capital_gain")
    capital_loss = fc.numeric_column("capital_loss")
    hours_per_week = fc.numeric_column("hours_per_week")

    education = fc.categorical_column_with_vocabulary_list(
        "education",
        [
            *["Bachelors", "HS-grad", "11th", "Masters", "9th", "Some-college"],
            *["Assoc-acdm", "Assoc-voc", "7th-8th", "Doctorate", "Prof-school"],
            *["5th-6th", "10th", "1st-4th", "Preschool", "12th"],
        ],
    )
    marital_status = fc.categorical_column_with_vocabulary_list(
        "marital_status",
        [
            *["Married-civ-spouse", "Divorced", "Married-spouse-absent"],
            *["Never-married", "Separated", "Married-AF-spouse", "Widowed"],
        ],
    )
    relationship = fc.categorical_column_with_vocabulary_list(
        "relationship",
        [
            *["Husband", "Not-in-family", "Wife", "Own-child", "Unmarried"],
            "Other-relative",
        ],
    )
    workclass = fc.categorical_column_with_vocabulary_list(
        "workclass",
        [
            *["Self-emp-not-inc", "Private", "State-gov", "Federal-gov", "Local-gov"],
            *["?", "Self-emp-inc", "Without-pay", "Never-worked"],
        ],
    )
    occupation = fc.categorical_column_with_hash_bucket(
        "occupation", hash_bucket_size=1000
    )
    age_buckets = fc.bucketized_column(
        age, boundaries=[18, 25, 30, 35, 40, 45, 50, 55, 60, 65]
    )

    base_columns = [
        *[education, marital_status, relationship, workclass, occupation, age_buckets],
    ]
    crossed_columns = [
        fc.crossed_column(["education", "occupation"], hash_bucket_size=1000),
        fc.crossed_column(
            [age_buckets, "education", "occupation"], hash_bucket_size=1000
        ),
    ]
    deep_columns = [
        *[age, education_num, capital_gain, capital_loss, hours_per_week],
        fc.indicator_column(workclass),
        fc.indicator_column(education),
        fc.indicator_column(marital_status),
        fc.indicator_column(relationship),
        fc.embedding_column(occupation, dimension=8),
    ]
    return base_columns + crossed_columns, deep_columns


def build_estimator(model_dir):
    """Return the classifier."""
    wide_columns, deep_columns = build_model_columns()
    return tf.estimator.DNNLinearCombinedClassifier(
        model_dir=model_dir,
        linear_feature_columns=wide_columns,
        dnn_feature_columns=deep_columns,
        dnn_hidden_units=[100, 75, 50, 25],
        config=tf.estimator.RunConfig(tf_random_seed=1),
    )


def input_fn(data_file, num_epochs, shuffle, batch_size):
    """Return batches of features and labels."""

    def parse_csv(value):
        columns = tf.decode_csv(value, record_defaults=CSV_COLUMN_DEFAULTS)
        features = dict(zip(CSV_COLUMNS, columns, strict=True))
        labels = features.pop("income_bracket")
        return features, tf.equal(labels, ">50K")

    dataset = tf.data.TextLineDataset(data_file)
    if shuffle:
        dataset = dataset.shuffle(buffer_size=20_000)
    dataset = dataset.map(parse_csv, num_parallel_calls=5)
    dataset = dataset.repeat(num_epochs)
    return dataset.batch(batch_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train_data")
    parser.add_argument("test_data")
    parser.add_argument("--model-dir", default="runs/census-tf")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=40)
    flags = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)

    model = build_estimator(flags.model_dir)
    model.train(
        lambda: input_fn(flags.train_data, flags.epochs, True, flags.batch_size)
    )
    results = model.evaluate(
        lambda: input_fn(flags.test_data, 1, False, flags.batch_size)
    )
    for key in sorted(results):
        print(f"{key}: {results[key]}")


if __name__ == "__main__":
    main()
