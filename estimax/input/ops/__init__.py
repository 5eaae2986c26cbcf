"""Verbs: the operations of a dataset (batch, map, …), one node and one stream each."""
