"""The settings of a secure connection: what they refuse, and what nobody sees of them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from state.errors import InvalidStoreSettingError
from state.zookeeper.security import PASSWORD_VARIABLE, ZookeeperSecurity
from state.zookeeper.tree import _Hidden, _identity

if TYPE_CHECKING:
    from pathlib import Path

MARK = "marked-password"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"auth": "basic"}, "option zookeeperAuth is 'basic'; use one of none, digest"),
        ({"acl": "closed"}, "option zookeeperAcl is 'closed'; use one of open, creator"),
        ({"ca_file": "ca.pem"}, "option zookeeperCaFile is set, but zookeeperTls is not true"),
        (
            {"verify_hostname": False},
            "option zookeeperVerifyHostname is false, but zookeeperTls is not true",
        ),
        (
            {"tls": True, "cert_file": "c.pem"},
            "option zookeeperCertFile is set without zookeeperKeyFile",
        ),
        ({"auth": "sasl"}, "option zookeeperUser is missing for zookeeperAuth sasl"),
        ({"auth": "digest", "user": "a:b"}, "option zookeeperUser contains a ':'"),
        ({"password": MARK}, "option zookeeperPassword is set, but zookeeperAuth is none"),
        (
            {"auth": "digest", "user": "a", "password": MARK, "password_file": "f"},
            "options zookeeperPassword and zookeeperPasswordFile are both set",
        ),
        ({"acl": "creator"}, "option zookeeperAcl is 'creator', but this client has no identity"),
    ],
)
def test_a_bad_setting_is_refused_with_its_option_and_without_the_password(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidStoreSettingError) as refused:
        ZookeeperSecurity(**given)
    assert str(refused.value).startswith(sentence)
    assert MARK not in str(refused.value)


def test_the_password_is_in_no_repr_and_no_command() -> None:
    security = ZookeeperSecurity(tls=True, auth="sasl", user="etl", password=MARK)
    assert repr(security) == "ZookeeperSecurity(tls=True, auth='sasl', user='etl', password='***')"
    assert security.command_options() == (
        " --option zookeeperTls=true --option zookeeperAuth=sasl --option zookeeperUser=etl"
    )


def test_what_kazoo_is_given_to_log_hides_the_password_and_sends_it() -> None:
    ((scheme, credential),) = _identity(
        ZookeeperSecurity(auth="digest", user="etl", password=MARK)
    )["auth_data"]
    assert (scheme, credential.encode()) == ("digest", f"etl:{MARK}".encode())
    assert isinstance(credential, _Hidden)
    assert MARK not in f"{credential} {(credential,)}"


def test_an_identity_owns_what_it_creates_unless_told_otherwise() -> None:
    assert ZookeeperSecurity().node_acl == "open"
    assert ZookeeperSecurity(auth="digest", user="etl").node_acl == "creator"
    assert ZookeeperSecurity(auth="digest", user="etl", acl="open").node_acl == "open"


def test_the_password_is_read_from_the_file_s_first_line_and_then_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or from the environment. Where there is none, the option is named."""
    file = tmp_path / "password"
    file.write_text(f"{MARK}\nnext line\n")
    loaded = ZookeeperSecurity(auth="digest", user="etl", password_file=str(file)).loaded()
    file.unlink()
    copy = pickle.loads(pickle.dumps(loaded))  # noqa: S301  # our own bytes
    assert copy.password == MARK
    assert copy.loaded() == loaded
    file.touch()
    for given, says in (
        (str(tmp_path / "missing"), "zookeeperPasswordFile .*cannot be"),
        (str(file), "has no password in its first line"),
        (None, "zookeeperPassword is missing for"),
    ):
        with pytest.raises(InvalidStoreSettingError, match=says):
            ZookeeperSecurity(auth="digest", user="etl", password_file=given).loaded()
    monkeypatch.setenv(PASSWORD_VARIABLE, MARK)
    assert ZookeeperSecurity(auth="digest", user="etl").loaded().password == MARK


def test_files_that_hold_no_certificate_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    with pytest.raises(InvalidStoreSettingError, match=r"CaFile .* no certificate"):
        ZookeeperSecurity(tls=True, ca_file=str(bad)).tls_context()
    with pytest.raises(InvalidStoreSettingError, match="a matching certificate and key in PEM"):
        ZookeeperSecurity(tls=True, cert_file=str(bad), key_file=str(bad)).tls_context()
    with pytest.raises(InvalidStoreSettingError, match="option zookeeperKeyFile"):
        ZookeeperSecurity(
            tls=True, cert_file=str(bad), key_file=str(tmp_path / "missing")
        ).tls_context()


def test_a_server_that_was_not_set_up_for_it_is_refused() -> None:
    with pytest.raises(InvalidStoreSettingError, match="option zookeeperTls is not possible with"):
        ZookeeperSecurity(tls=True).check_usable("embedded:/x")
    ZookeeperSecurity(auth="digest", user="etl").check_usable("embedded:/x")
