"""Verbs of a dataset: one node and one stream each."""
