"""Subclass `ex.Estimator`: a recommender with arguments and methods of its own.

    python examples/custom_estimator/factors.py

`Factors` learns a vector for every user and every film, so that their product is the
rating. The class defines `model_fn` as a method, gives names to its settings, and adds
`similar`, which reads the trained vectors. A run file can name such a class:
`model: {class: "factors:Factors", params: {...}}`.
"""

import sys
import tempfile

import jax.numpy as jnp
import numpy as np

import estimax as ex

GENRES = ["crime", "comedy", "space"]


class Factors(ex.Estimator):
    """Matrix factorization: rating = mean + bias of the film + user · film.

    Args:
      users: Number of users; the feature `user` has ids below it.
      films: Number of films; the feature `film` has ids below it.
      width: Size of the vectors.
      mean: The mean rating, to which the model adds.
      model_dir: Folder of checkpoints.
      config: Settings of the run.
    """

    def __init__(
        self, users, films, width=4, mean=3.0, model_dir=None, config=None
    ) -> None:
        sizes = {"users": users, "films": films, "width": width, "mean": mean}
        super().__init__(model_dir=model_dir, config=config, params=sizes)

    def model_fn(self, features, labels, mode, params):
        """Return the spec of a mode, as every `model_fn` does."""
        shape = (params["users"], params["width"])
        users = ex.get_variable("users", shape)
        films = ex.get_variable("films", (params["films"], params["width"]))
        biases = ex.get_variable("biases", (params["films"],), initializer=0.0)
        of_user = ex.embedding_lookup(users, features["user"])  # [B, D]
        of_film = ex.embedding_lookup(films, features["film"])
        rating = params["mean"] + ex.embedding_lookup(biases, features["film"])
        rating = rating + jnp.sum(of_user * of_film, axis=-1)  # [B]
        if mode == ex.ModeKeys.PREDICT:
            return ex.EstimatorSpec(mode, predictions={"rating": rating})
        penalty = jnp.mean(jnp.square(of_user)) + jnp.mean(jnp.square(of_film))
        return ex.EstimatorSpec(
            mode,
            loss=jnp.mean(jnp.square(rating - labels)) + 0.01 * penalty,
            train_op=ex.optimizers.Adagrad(0.2),
            eval_metric_ops={
                "rmse": ex.metrics.root_mean_squared_error(labels, rating)
            },
        )

    def similar(self, film, count=5):
        """Return the films whose vectors point most nearly in the same direction."""
        vectors = self.get_variable_value("films")
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        best = np.argsort(-vectors @ vectors[film])
        return [int(other) for other in best if other != film][:count]


def ratings(count, seed):
    """Return ratings of users who like one genre each; film f has genre f % 3."""
    draw = np.random.default_rng(seed)
    user, film = draw.integers(0, 200, count), draw.integers(0, 60, count)
    likes = user % 3 == film % 3
    stars = np.where(likes, 4.5, 2.5) + draw.normal(0, 0.4, count)
    return {"user": user, "film": film}, stars.astype(np.float32)


def main(steps=800):
    train, test = ratings(8000, seed=1), ratings(2000, seed=2)
    rows = ex.input.Dataset.from_tensor_slices(train).shuffle(8000, seed=1).repeat()
    tested = ex.input.Dataset.from_tensor_slices(test).batch(500)
    with tempfile.TemporaryDirectory() as folder:
        config = ex.RunConfig(tf_random_seed=1, save_summary_steps=0)
        model = Factors(200, 60, mean=3.2, model_dir=folder, config=config)
        model.train(lambda: rows.batch(128), steps=steps)
        error = model.evaluate(lambda: tested)["rmse"]
        print(f"error {error:.2f} stars; of a constant {np.std(test[1]):.2f}")
        found = model.similar(0)
        print(f"film 0 ({GENRES[0]}) is similar to", end=" ")
        print(", ".join(f"{film} ({GENRES[film % 3]})" for film in found))
        user = {"user": np.zeros(3, np.int64), "film": np.arange(3)}
        for genre, row in zip(GENRES, model.predict(lambda: iter([user])), strict=True):
            print(f"user 0 would give a {genre} film {row['rating']:.1f} stars")
    return error, found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
