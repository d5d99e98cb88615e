from __future__ import annotations

import copy
import pickle

import pytest

from state.errors import InvalidSequenceNumberError
from state.sequence_number import SequenceNumber


def test_a_sub_sequence_number_of_zero_is_not_written() -> None:
    """A record that is not part of an aggregate has none."""
    assert str(SequenceNumber.parse("7.0")) == "7"
    assert SequenceNumber.parse("7.0") == SequenceNumber(7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 7",
        "7 ",
        "7\n",
        "07",
        "-1",
        "+1",
        "1_000",
        "1e3",
        "7.",
        ".7",
        "7.01",
        "7.1.2",
        "LATEST",
        "٣",
        "9" * 130,
        "7.12345678901",
    ],
)
def test_a_text_that_is_not_a_sequence_number_is_refused(text: str) -> None:
    """Python's own `int` would accept some of them."""
    with pytest.raises(InvalidSequenceNumberError, match="is not a sequence number"):
        SequenceNumber.parse(text)


@pytest.mark.parametrize(("sequence", "sub"), [(-1, 0), (0, -1), (10**129, 0), (0, 10**10)])
def test_a_number_whose_text_could_not_be_read_back_is_refused(sequence: int, sub: int) -> None:
    """Otherwise it would be detected only when it is read from the store."""
    with pytest.raises(InvalidSequenceNumberError):
        SequenceNumber(sequence, sub)


def test_a_sequence_number_is_not_comparable_with_other_things() -> None:
    """A forgotten parse is an error, not an order."""
    assert SequenceNumber(7) != 7
    assert SequenceNumber(7) != "7"
    with pytest.raises(TypeError):
        assert SequenceNumber(7) < 8  # type: ignore[operator]  # that this is an error is what is tested


def test_a_sequence_number_cannot_be_changed() -> None:
    """It is a key of maps."""
    number = SequenceNumber(7)
    with pytest.raises(AttributeError, match="immutable"):
        number.sequence = 8
    with pytest.raises(AttributeError, match="immutable"):
        del number.sub


def test_a_sequence_number_survives_pickling_and_copying() -> None:
    """Spark pickles the reader, which holds some."""
    number = SequenceNumber(7, 3)
    assert pickle.loads(pickle.dumps(number)) == number  # noqa: S301  # our own bytes
    assert copy.deepcopy(number) == number
    assert repr(number) == "SequenceNumber(7.3)"
