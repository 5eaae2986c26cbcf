"""Files and folders: atomic writes, locks, caches, and the processes that use them.

A crash leaves the old file or the new one (`atomic.py`). One process at a time writes
to a folder (`locks.py`). JSON that is read may be damaged or forged (`json_text.py`).
"""
