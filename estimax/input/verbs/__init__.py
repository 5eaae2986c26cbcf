"""The methods of a dataset, one node and one stream each. See `streams/stream.py`."""
