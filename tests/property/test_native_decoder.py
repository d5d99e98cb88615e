"""The native decoder gives the pages that the decoders in Python give, or declines the body."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.service.native_decoder import decode_natively
from tests.property.damaged_pages import body_of, difference
from tests.property.test_get_records import bodies, pages
from tests.support.shell.tools import NATIVE_DECODER


@pytest.fixture(autouse=True, scope="module")
def native_decoder() -> None:
    NATIVE_DECODER.path()


@given(st.integers(0, 2**63), st.booleans())
def test_a_body_that_it_takes_is_the_same_page_in_python(
    seed: int,
    is_cbor: bool,  # noqa: FBT001  # an input of the property
) -> None:
    """Whole bodies, ones with several faults, and noise. A body that is refused in Python is never
    taken, so the error is the same one.
    """
    assert difference(body_of(seed, is_cbor=is_cbor), is_cbor=is_cbor)[1] is None


@given(pages())
def test_any_form_of_a_page_in_cbor_is_declined_or_the_same_page(
    page: tuple[bytes, list[dict[str, Any]], dict[str, Any]],
) -> None:
    assert difference(page[0], is_cbor=True)[1] is None


@given(bodies())
def test_any_form_of_a_page_in_json_is_declined_or_the_same_page(body: bytes) -> None:
    assert difference(body, is_cbor=False)[1] is None


@pytest.mark.parametrize("is_cbor", [False, True], ids=["json", "cbor"])
def test_many_of_the_bodies_are_taken(is_cbor: bool) -> None:  # noqa: FBT001  # a parameter
    """Else the properties would compare nothing."""
    made = (body_of(seed, is_cbor=is_cbor) for seed in range(200))
    assert sum(decode_natively(body, is_cbor=is_cbor) is not None for body in made) > 30
