"""Addresses of processes, as text.

>>> is_address("10.0.0.1:4000"), is_address("10.0.0.1"), is_address("a:99999")
(True, False, False)
"""


def is_address(text: str) -> bool:
    """Return whether a text is host:port."""
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 2**16
    return bool(colon and host and is_port and not any(map(str.isspace, host)))
