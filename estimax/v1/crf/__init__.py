"""Linear-chain conditional random fields, for models that tag sequences.

    log_likelihood, transitions = ex.crf.crf_log_likelihood(logits, tags, lengths)
    loss = -jnp.mean(log_likelihood)
    best_tags, _ = ex.crf.crf_decode(logits, transitions, lengths)

Names and arguments are those of `tf.contrib.crf` and `tfa.text`. A sequence is scored
by the sum of its unary scores (one for each step and tag) and of its transition scores
(one for each pair of neighbouring tags). Read `scores.py` first.
"""

from estimax.v1.crf.decoding import crf_decode, viterbi_decode
from estimax.v1.crf.likelihood import (
    crf_log_likelihood,
    crf_log_norm,
    crf_multitag_sequence_score,
)
from estimax.v1.crf.scores import crf_binary_score, crf_sequence_score, crf_unary_score

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_multitag_sequence_score",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]
