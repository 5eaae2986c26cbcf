"""A client of `estimax serve` and of TensorFlow Serving, over REST or gRPC.

    client = Client("http://localhost:8501")
    client.predict("late", {"carrier": ["UA"], "hour": [18]})["probabilities"]

It needs neither TensorFlow nor JAX. Read `client.py` first.
"""

from estimax.client.calls import CallError
from estimax.client.client import Client

__all__ = ["CallError", "Client"]
