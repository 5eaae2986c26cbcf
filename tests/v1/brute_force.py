"""A CRF by enumeration of all sequences of tags, in float64."""

import itertools

import numpy as np

BATCH, STEPS, TAGS = 6, 4, 3
LENGTHS = np.array([4, 0, 1, 2, 3, 4])


def example(seed=0):
    """Return unary scores, tags and transitions."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(BATCH, STEPS, TAGS)).astype(np.float32) * 2
    tags = rng.integers(0, TAGS, (BATCH, STEPS))
    transitions = rng.normal(size=(TAGS, TAGS)).astype(np.float32)
    return inputs, tags, transitions


def score(inputs, tags, transitions):
    """Return the score of one sequence of tags."""
    unary = sum(float(row[tag]) for row, tag in zip(inputs, tags, strict=True))
    pairs = itertools.pairwise(tags)
    return unary + sum(float(transitions[pair]) for pair in pairs)


def all_scores(inputs, transitions):
    """Return the score of every sequence of tags of one input [T, K]."""
    paths = itertools.product(range(inputs.shape[1]), repeat=len(inputs))
    return {path: score(inputs, path, transitions) for path in paths}


def log_norm(inputs, transitions):
    """Return log(sum(exp(scores))) of one input; 0 for no steps."""
    return np.log(sum(np.exp(list(all_scores(inputs, transitions).values()))))


def log_norm_gradients(inputs, transitions):
    """Return the gradients by the inputs and transitions: expected counts."""
    scores = all_scores(inputs, transitions)
    norm = np.log(sum(np.exp(list(scores.values()))))
    by_input, by_pair = np.zeros(inputs.shape), np.zeros(transitions.shape)
    for path, value in scores.items():
        probability = np.exp(value - norm)
        for step, tag in enumerate(path):
            by_input[step, tag] += probability
        for pair in itertools.pairwise(path):
            by_pair[pair] += probability
    return by_input, by_pair
