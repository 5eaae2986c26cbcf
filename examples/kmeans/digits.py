"""Group handwritten digits without labels, with k-means.

    python examples/kmeans/digits.py

`ex.KMeans` sees images only. It is trained with several numbers of clusters; more
clusters always have smaller distances, and the gain becomes small where there are
enough of them. Labels are used only to name the clusters afterwards. The images that
are farthest from their center are the unusual ones.
"""

import sys
import tempfile

import numpy as np
from sklearn.datasets import load_digits

import estimax as ex


def clustered(images, clusters, folder, steps):
    """Return a trained model, and the cluster of every image."""
    rows = ex.input.Dataset.from_tensor_slices({"pixels": images})
    model = ex.KMeans(
        clusters,
        f"{folder}/{clusters}",
        initial_clusters="kmeans_plus_plus",
        use_mini_batch=False,  # every batch is all the data
        config=ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
    )
    model.train(lambda: rows.repeat().batch(len(images)), steps=steps)
    found = list(model.predict_cluster_index(lambda: rows.batch(len(images))))
    return model, np.array(found)


def main(steps=30):
    digits = load_digits()
    images = digits.images.reshape(-1, 64).astype(np.float32)
    rows = ex.input.Dataset.from_tensor_slices({"pixels": images})
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for clusters in (2, 10, 20):
            model, index = clustered(images, clusters, folder, steps)
            distance = model.score(lambda: rows.batch(len(images))) / len(images)
            # The share of images that have the most frequent digit of their cluster.
            common = [
                np.bincount(digits.target[index == k]).max(initial=0)
                for k in range(clusters)
            ]
            found[clusters] = sum(common) / len(images)
            print(
                f"{clusters:2} clusters: squared distance {distance:4.0f}, "
                f"{found[clusters]:.0%} of images have the digit of their cluster"
            )
        nearest = [d.min() for d in model.transform(lambda: rows.batch(len(images)))]
    unusual = int(np.argmax(nearest))
    print(f"the most unusual image is a {digits.target[unusual]}:")
    for line in images[unusual].reshape(8, 8):
        print("".join(" .:oO@"[int(value / 3)] for value in line))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
