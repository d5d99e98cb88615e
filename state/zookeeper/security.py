"""How a client proves who it is to ZooKeeper, and whom it lets in: TLS, identity, access control
lists. Imports no kazoo.

Errors name the reader options (`zookeeperTls`, `zookeeperUser` ...), which are the fields with
`zookeeper` before them, in all front ends. No error and no repr shows the password.
"""

from __future__ import annotations

import importlib.util
import os
import ssl
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from state.errors import InvalidStoreSettingError
from state.zookeeper.servers import EMBEDDED_PREFIX

PASSWORD_VARIABLE = "KINESIS_SPOUT_ZOOKEEPER_PASSWORD"  # noqa: S105  # where it is, not what it is
AUTHS = ("none", "digest", "sasl", "kerberos")
ACLS = ("open", "creator", "creator-read")
_HIDDEN = frozenset({"password"})
_WITH_PASSWORD = ("digest", "sasl")
# The packages behind kazoo's SASL, by kind of identity.
_NEEDS = {"sasl": ("puresasl",), "kerberos": ("puresasl", "kerberos")}
_DISTRIBUTIONS = {"puresasl": "pure-sasl", "kerberos": "kerberos"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ZookeeperSecurity:
    """The security of a ZooKeeper connection. By default, there is none: no TLS, no identity, and
    znodes that are open to everyone.

    - `tls`: connect with TLS. The server's certificate is always verified: only against `ca_file`
      (PEM), or, without `ca_file`, against the authorities that the machine trusts.
    - `verify_hostname`: the certificate must also match the host name in the connect string.
    - `cert_file` and `key_file`: the client's certificate and its unencrypted key, as PEM.
    - `auth`: `none`; `digest` (a ZooKeeper user and password); `sasl` (DIGEST-MD5 with a user and
      password); `kerberos` (GSSAPI with the process's ticket).
    - `password`, or `password_file`, which has the password in its first line. Without both, the
      password comes from the environment variable KINESIS_SPOUT_ZOOKEEPER_PASSWORD.
    - `acl`: who may use the znodes that are created: `open` (everyone), `creator` (only this
      identity) or `creator-read` (this identity, and everyone may read). None means `creator` if
      `auth` sets an identity, otherwise `open`.

    The constructor does no I/O. Raises `InvalidStoreSettingError`.
    """

    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_hostname: bool = True
    auth: str = "none"
    user: str | None = None
    password: str | None = None
    password_file: str | None = None
    acl: str | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("auth", self.auth, AUTHS), ("acl", self.acl, (None, *ACLS))):
            if value not in known:
                _refuse(
                    f"option {_option(name)} is {value!r}",
                    f"use one of {', '.join(filter(None, known))}",
                )
        if not self.tls:
            for name in ("ca_file", "cert_file", "key_file"):
                if getattr(self, name) is not None:
                    _refuse(
                        f"option {_option(name)} is set, but zookeeperTls is not true",
                        "set zookeeperTls to true",
                    )
            if not self.verify_hostname:
                _refuse(
                    "option zookeeperVerifyHostname is false, but zookeeperTls is not true",
                    "omit zookeeperVerifyHostname, or set zookeeperTls to true",
                )
        if (self.cert_file is None) != (self.key_file is None):
            given, missing = (
                ("cert_file", "key_file") if self.key_file is None else ("key_file", "cert_file")
            )
            _refuse(
                f"option {_option(given)} is set without {_option(missing)}",
                "set both zookeeperCertFile and zookeeperKeyFile, or neither",
            )
        with_password = self.auth in _WITH_PASSWORD
        if with_password and not self.user:
            _refuse(
                f"option zookeeperUser is missing for zookeeperAuth {self.auth}",
                "set zookeeperUser to the name of the user",
            )
        if self.auth == "digest" and ":" in (self.user or ""):
            _refuse(
                "option zookeeperUser contains a ':', which digest does not allow",
                "use a user name without ':'",
            )
        for name in ("user", "password", "password_file"):
            if getattr(self, name) is not None and not with_password:
                _refuse(
                    f"option {_option(name)} is set, but zookeeperAuth is {self.auth}",
                    "set zookeeperAuth to digest or sasl",
                )
        if self.password is not None and self.password_file is not None:
            _refuse(
                "options zookeeperPassword and zookeeperPasswordFile are both set",
                "set only one of the two options",
            )
        if self.acl in ("creator", "creator-read") and not self.has_identity:
            _refuse(
                f"option zookeeperAcl is {self.acl!r}, but this client has no identity that could "
                "own a znode",
                "set zookeeperAuth or zookeeperCertFile",
            )

    def __repr__(self) -> str:
        shown = (f"{name}={'***' if name in _HIDDEN else value!r}" for name, value in self._given())
        return f"ZookeeperSecurity({', '.join(shown)})"

    @property
    def node_acl(self) -> str:
        """One of `ACLS`."""
        return self.acl or ("open" if self.auth == "none" else "creator")

    @property
    def has_identity(self) -> bool:
        return self.auth != "none" or self.cert_file is not None

    def loaded(self) -> ZookeeperSecurity:
        """Return a copy that contains the password, to be sent to other machines. Reads the
        password file or the environment. Raises `InvalidStoreSettingError`.
        """
        if self.auth not in _WITH_PASSWORD or self.password is not None:
            return self
        password = os.environ.get(PASSWORD_VARIABLE, "")
        if self.password_file is None and not password:
            _refuse(
                f"option zookeeperPassword is missing for zookeeperUser {self.user}",
                f"set zookeeperPasswordFile, or the environment variable {PASSWORD_VARIABLE}",
            )
        if self.password_file is not None:
            lines = _text("password_file", self.password_file).splitlines()
            password = lines[0] if lines else ""
            if not password:
                _refuse(
                    f"option zookeeperPasswordFile {self.password_file!r} has no password in its "
                    "first line"
                )
        return replace(self, password=password, password_file=None)

    def check_usable(self, address: str) -> None:
        """Raise `InvalidStoreSettingError` if this machine or address does not support these
        settings.
        """
        if address.startswith(EMBEDDED_PREFIX) and (self.tls or self.auth in _NEEDS):
            option = _option("tls" if self.tls else "auth")
            _refuse(
                f"option {option} is not possible with {address}, because the embedded ZooKeeper "
                "supports neither TLS nor authentication",
                f"omit {option}",
            )
        for package in _NEEDS.get(self.auth, ()):
            if importlib.util.find_spec(package) is None:
                _refuse(
                    f"option zookeeperAuth {self.auth!r} needs the package {package}, which is not "
                    "installed here",
                    f"run pip install {_DISTRIBUTIONS[package]}",
                )

    def tls_context(self) -> ssl.SSLContext:
        """The TLS context: trusted authorities and client certificate. Reads the files. Raises
        `InvalidStoreSettingError`.
        """
        # Never an empty text: with one, Python would trust the machine's authorities.
        authorities = None if self.ca_file is None else f"{_text('ca_file', self.ca_file)}\n"
        try:
            context = ssl.create_default_context(cadata=authorities)
        except (ssl.SSLError, ValueError):
            _refuse(f"option zookeeperCaFile {self.ca_file!r} has no certificate in PEM format")
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_hostname
        if self.cert_file is not None and self.key_file is not None:
            _text("cert_file", self.cert_file)
            _text("key_file", self.key_file)
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password=_refuse_encrypted)
            except ssl.SSLError:
                _refuse(
                    f"option zookeeperCertFile {self.cert_file!r} and zookeeperKeyFile "
                    f"{self.key_file!r} are not a matching certificate and key in PEM format",
                    "use a certificate and a key that belong together",
                )
        return context

    def command_options(self) -> str:
        """The settings as options of a command, without the password."""
        return "".join(
            f" --option {_option(name)}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in self._given()
            if name not in _HIDDEN
        )

    def identity(self) -> str:
        """The client's identity, as errors name it."""
        if self.auth == "none":
            return "a client without an identity (option zookeeperAuth)"
        user = "" if self.user is None else f" {self.user!r}"
        return f"the {self.auth} identity{user} (options zookeeperAuth, zookeeperUser)"

    def _given(self) -> list[tuple[str, Any]]:
        pairs = [(each, getattr(self, each.name)) for each in fields(self)]
        return [(each.name, value) for each, value in pairs if value != each.default]


def _option(name: str) -> str:
    return "zookeeper" + "".join(part.capitalize() for part in name.split("_"))


def _refuse(message: str, remedy: str = "") -> NoReturn:
    raise InvalidStoreSettingError(message, remedy) from None


def _text(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as exc:
        _refuse(
            f"option {_option(name)} {path!r} cannot be read: {exc.strerror}",
            "put the file on this machine, or correct its path",
        )
    except UnicodeDecodeError:
        _refuse(f"option {_option(name)} {path!r} is not a text file", "use a PEM file")


def _refuse_encrypted() -> NoReturn:
    """OpenSSL would ask on the terminal."""
    _refuse(
        "the key in option zookeeperKeyFile is encrypted",
        "use a key without a passphrase, in a file that only its user can read",
    )


OPEN = ZookeeperSecurity()
