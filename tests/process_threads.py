"""Processes of a cluster as threads of one process, for tests of what they exchange."""

import threading
from concurrent.futures import ThreadPoolExecutor

from estimax.parallel.cluster import Cluster
from estimax.parallel.processes import Processes


class MemoryStore:
    """A key-value store as `jax.distributed` has one, for threads of one process."""

    def __init__(self):
        self.values = {}
        self._changed = threading.Condition()

    def key_value_set(self, key, value, allow_overwrite=False):
        with self._changed:
            assert allow_overwrite or key not in self.values, key
            self.values[key] = value
            self._changed.notify_all()

    def blocking_key_value_get(self, key, timeout_in_ms):
        with self._changed:
            found = self._changed.wait_for(
                lambda: key in self.values, timeout=timeout_in_ms / 1000
            )
            if not found:
                raise RuntimeError("DEADLINE_EXCEEDED")
            return self.values[key]

    def key_value_dir_get(self, key):
        with self._changed:
            return [(k, v) for k, v in self.values.items() if k.startswith(key)]

    def key_value_delete(self, key):
        with self._changed:
            for found in [k for k in self.values if k.startswith(key)]:
                del self.values[found]


def processes_of(count, store=None):
    store = store or MemoryStore()
    return [Processes(store, i, count, Cluster().name_of) for i in range(count)]


def in_threads(peers, function):
    """Call function(process) in a thread for each process; return the results."""
    with ThreadPoolExecutor(len(peers)) as pool:
        return list(pool.map(function, peers))
