"""The ports of a server: addresses, TLS, and what is wrong with them.

    tls = Tls.from_files("key.pem", "certificate.pem", client_ca=None)
    rest = bind("0.0.0.0", 8501, shared=False)
    listen_grpc(server, "0.0.0.0", 8500, tls)

Keys and certificates are read and tried here, before models are loaded, because gRPC
reports a bad one as a failed handshake of each client.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from estimax.core.errors import ConfigError
from estimax.serving.config_files import read_proto


@dataclass(frozen=True)
class Tls:
    """A key and certificates, as PEM.

    Args:
      key: The private key of the server.
      certificate: Its certificate chain.
      client_ca: The certificates of the authorities that sign clients. None: clients
        need no certificate.
    """

    key: bytes
    certificate: bytes
    client_ca: bytes | None = None

    @classmethod
    def from_files(cls, key: str, certificate: str, client_ca: str | None) -> Tls:
        """Read and try a key and certificates.

        Raises:
          ConfigError: A file cannot be read, or they do not belong together.
        """
        made = cls(
            _read("ssl_key", key),
            _read("ssl_certificate", certificate),
            None if client_ca is None else _read("ssl_client_ca", client_ca),
        )
        made.context(f"{key}, {certificate}")
        return made

    @classmethod
    def from_config_file(cls, path: str) -> Tls:
        """Read and try the `SSLConfig` of TensorFlow Serving.

        Raises:
          ConfigError: The file cannot be read, or its key is bad.
        """
        proto = read_proto(Path(path), "SSLConfig")
        if proto.client_verify and not proto.custom_ca:
            raise ConfigError(f"{path}: client_verify needs custom_ca, which is empty.")
        made = cls(
            proto.server_key.encode(),
            proto.server_cert.encode(),
            proto.custom_ca.encode() if proto.client_verify else None,
        )
        made.context(path)
        return made

    def context(self, where: str = "TLS") -> ssl.SSLContext:
        """Return the settings of an HTTP server.

        Args:
          where: The origin of the key, for errors.

        Raises:
          ConfigError: The key, or a certificate, is not valid.
        """
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # The ssl module reads a key from a file only.
            with tempfile.TemporaryDirectory() as folder:
                key, chain = Path(folder, "key"), Path(folder, "chain")
                os.close(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600))
                key.write_bytes(self.key)
                chain.write_bytes(self.certificate)
                # Without a function, OpenSSL asks a terminal for the password.
                made.load_cert_chain(chain, key, password=_no_password)
            if self.client_ca is not None:
                made.load_verify_locations(cadata=self.client_ca.decode("ascii"))
                made.verify_mode = ssl.CERT_REQUIRED
        except (ssl.SSLError, ValueError, OSError) as error:
            raise ConfigError(
                f"{where}: expected a private key and its certificate as PEM; {error}."
            ) from None
        return made

    def credentials(self) -> grpc.ServerCredentials:
        """Return the settings of a gRPC server."""
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.client_ca,
            require_client_auth=self.client_ca is not None,
        )


def bind(host: str, port: int, *, shared: bool) -> socket.socket:
    """Return a socket that is bound to the port of REST.

    Args:
      host: A name, or an IPv4 or IPv6 address; "::" is both.
      port: The port.
      shared: Whether other processes may listen on the port.

    Raises:
      ConfigError: The port is taken, or the address is not one of this machine.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, number)
    except OSError as error:
        raise ConfigError(f"host {host!r}: expected an address; {error}.") from None
    try:
        # A server that starts again need not wait a minute for old connections.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and host == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(address)
    except OSError as error:
        made.close()
        raise ConfigError(
            f"port {port} of {host} cannot be listened on: {error.strerror}. Choose "
            "another with --rest-api-port."
        ) from None
    return made


def listen_grpc(server: grpc.aio.Server, address: str, tls: Tls | None) -> None:
    """Let a gRPC server listen on an address, as `grpc_address` returns it.

    Raises:
      ConfigError: The address cannot be listened on.
    """
    try:
        if tls is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, tls.credentials())
    except RuntimeError as error:
        option = "--grpc-socket-path" if address.startswith("unix:") else "--port"
        raise ConfigError(
            f"{address} cannot be listened on: {error}. Choose another with {option}."
        ) from None


def grpc_address(host: str, port: int) -> str:
    """Return the address of a port as gRPC writes it.

    >>> grpc_address("::", 8500)
    '[::]:8500'
    """
    try:
        is_ipv6 = ipaddress.ip_address(host).version == 6
    except ValueError:
        is_ipv6 = False
    return f"[{host}]:{port}" if is_ipv6 else f"{host}:{port}"


def grpc_options(given: tuple[str, ...]) -> list[tuple[str, int | str]]:
    """Return options of gRPC; a value that is a number is passed as one.

    >>> grpc_options(("grpc.max_connection_age_ms=2000",))
    [('grpc.max_connection_age_ms', 2000)]

    Raises:
      ConfigError: An option is not NAME=VALUE.
    """
    found: list[tuple[str, int | str]] = []
    for option in given:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"grpc_options: expected NAME=VALUE such as "
                f"grpc.max_connection_age_ms=2000, found {option!r}."
            )
        is_number = value.lstrip("-").isdecimal()
        found.append((name, int(value) if is_number else value))
    return found


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{option}: {path} cannot be read: {error.strerror}."
        ) from None


def _no_password() -> str:
    raise ValueError("the key is encrypted, and there is nobody to ask for a password")
