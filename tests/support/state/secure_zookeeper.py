"""A real ZooKeeper that asks who a client is: TLS, client certificates, SASL. Its certificates are
made for each test run, and no key outlives it.
"""

from __future__ import annotations

import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from spark_job.options import OPTIONS
from state.zookeeper.embedded import answers, free_port, server_command
from state.zookeeper.security import ZookeeperSecurity
from tests.support.certificates import Authority
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER, PASSWORD = "etl", "marked-zookeeper-password"
OTHER_USER, OTHER_PASSWORD = "reports", "another-password"


@dataclass(frozen=True, slots=True)
class SecureZookeeper:
    """A server with a plain port, where SASL and digest serve, and a TLS port that wants a client's
    certificate if `wants_certificate`.
    """

    plain: str
    tls: str
    authority: Authority
    client_cert: str
    client_key: str

    def tls_security(self, **changes: Any) -> ZookeeperSecurity:
        given: dict[str, Any] = {
            "tls": True,
            "ca_file": self.authority.file,
            "cert_file": self.client_cert,
            "key_file": self.client_key,
        }
        return ZookeeperSecurity(**given | changes)

    @property
    def fields(self) -> dict[str, Any]:
        """Of a source, for a client with a certificate and SASL; without the password."""
        return {
            "zookeeper_tls": True,
            "zookeeper_ca_file": self.authority.file,
            "zookeeper_cert_file": self.client_cert,
            "zookeeper_key_file": self.client_key,
            "zookeeper_auth": "sasl",
            "zookeeper_user": USER,
        }

    def words(self, password_file: str) -> list[str]:
        """The same on a command line."""
        given = self.fields | {"zookeeper_tls": "true", "zookeeper_password_file": password_file}
        pairs = (f"{OPTIONS[name].name}={value}" for name, value in given.items())
        return [word for pair in pairs for word in ("--option", pair)]


_CONFIG = """\
dataDir=data
clientPortAddress=127.0.0.1
clientPort={plain}
secureClientPort={tls}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
authProvider.2=org.apache.zookeeper.server.auth.X509AuthenticationProvider
ssl.keyStore.location={keystore}
ssl.keyStore.type=PEM
ssl.trustStore.location={authority}
ssl.trustStore.type=PEM
ssl.clientAuth={client_auth}
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=120000
admin.enableServer=false
4lw.commands.whitelist=srvr
"""
_JAAS = """\
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_{user}="{password}"
    user_{other_user}="{other_password}";
}};
"""


@contextmanager
def secure_zookeeper(directory: Path, *, wants_certificate: bool) -> Iterator[SecureZookeeper]:
    """Start the server, and end it."""
    authority = Authority(directory, "authority")
    authority.issue("server", "localhost", "127.0.0.1")
    client_cert, client_key = authority.issue("client")
    keystore = directory / "server.pem"
    keystore.write_text(
        "".join((directory / name).read_text() for name in ("server.key", "server.crt"))
    )
    keystore.chmod(0o600)
    (directory / "jaas.conf").write_text(
        _JAAS.format(
            user=USER,
            password=PASSWORD,
            other_user=OTHER_USER,
            other_password=OTHER_PASSWORD,
        )
    )
    plain, tls = free_port(0), free_port(0)
    (directory / "zoo.cfg").write_text(
        _CONFIG.format(
            plain=plain,
            tls=tls,
            keystore=keystore,
            authority=authority.file,
            client_auth="need" if wants_certificate else "none",
        )
    )
    with (directory / "server.out").open("wb") as output:
        server = subprocess.Popen(
            server_command(f"-Djava.security.auth.login.config={directory / 'jaas.conf'}"),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: server.poll() is not None or (answers(plain) and _listens(tls)))
        if server.poll() is not None:
            pytest.fail(f"ZooKeeper ended: {(directory / 'server.out').read_text()[-2000:]}")
        yield SecureZookeeper(
            f"127.0.0.1:{plain}", f"localhost:{tls}", authority, client_cert, client_key
        )
    finally:
        server.terminate()
        server.wait(20)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def tls_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZookeeper]:
    """Its TLS port wants no certificate of the client; its plain port serves digest and SASL."""
    with secure_zookeeper(tmp_path_factory.mktemp("tls"), wants_certificate=False) as server:
        yield server


@pytest.fixture(scope="session")
def certificate_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZookeeper]:
    """Its TLS port lets in only clients with a certificate."""
    with secure_zookeeper(tmp_path_factory.mktemp("mtls"), wants_certificate=True) as server:
        yield server
