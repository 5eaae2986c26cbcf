"""Write the samples of this folder, as version 0.1 of estimax did.

    python make.py FOLDER

The files are kept as they were written; newer versions must read them. Run this only to
add samples of a new format, into a folder named after the version.
"""

import json
import sys
from pathlib import Path

import numpy as np

import estimax as ex

folder = Path(sys.argv[1])
fc = ex.feature_columns
city = fc.categorical_column_with_vocabulary_list(
    "city", ["Oslo", "Rome"], num_oov_buckets=1
)
columns = [fc.numeric_column("age"), fc.embedding_column(city, 2)]
age = np.linspace(0, 1, 16, dtype=np.float32)
features = {"age": age, "city": np.array(["Oslo", "Rome", "Bern", ""] * 4, object)}
rows = ex.input.Dataset.from_tensor_slices((features, (age > 0.5).astype(np.int64)))
config = ex.RunConfig(tf_random_seed=1, save_summary_steps=0)
model = ex.DNNClassifier(
    [4], columns, folder / "run", optimizer=ex.optimizers.Adagrad(0.1), config=config
)
model.train(lambda: rows.repeat().batch(4), steps=20)
probabilities = [
    p["probabilities"].tolist() for p in model.predict(lambda: rows.batch(16))
]
metrics = {
    name: float(value) for name, value in model.evaluate(lambda: rows.batch(16)).items()
}
bundle = model.export_saved_model(folder / "bundle")
expected = {"probabilities": probabilities, "metrics": metrics, "global_step": 20}
(folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
