from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from state.errors import InvalidPositionError
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber

SEQUENCES = st.integers(0, 10**129 - 1) | st.integers(0, 1_000)
SUBS = st.just(0) | st.integers(0, 10**10 - 1)
NUMBERS = st.builds(SequenceNumber, SEQUENCES, SUBS)
# the years 1 to 9999
TIMES_MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
POSITIONS = (
    st.sampled_from([TRIM_HORIZON, SHARD_END])
    | st.builds(Position.at, NUMBERS)
    | st.builds(Position.after, NUMBERS.filter(lambda number: number.sub < 10**10 - 1))
    | st.builds(Position.at_timestamp, TIMES_MS)
)


@given(position=POSITIONS)
def test_a_position_is_read_back_from_its_text(position: Position) -> None:
    """Options, command line and store share the grammar."""
    assert Position.parse(str(position)) == position
    assert hash(Position.parse(str(position))) == hash(position)


@given(a=POSITIONS, b=POSITIONS)
def test_two_positions_have_one_text_only_when_they_are_the_same_place(
    a: Position, b: Position
) -> None:
    """No two kinds share a text."""
    same = (a.kind, a.sequence, a.timestamp_ms) == (b.kind, b.sequence, b.timestamp_ms)
    assert (str(a) == str(b)) is same
    assert (a == b) is same


@given(number=NUMBERS)
def test_a_sequence_number_is_read_back_from_its_text(number: SequenceNumber) -> None:
    assert SequenceNumber.parse(str(number)) == number


@given(a=SEQUENCES, b=SEQUENCES, sub_a=SUBS, sub_b=SUBS)
def test_the_order_is_that_of_the_integers(a: int, b: int, sub_a: int, sub_b: int) -> None:
    """Then that of the sub-sequence numbers; all comparisons agree."""
    left, right = SequenceNumber(a, sub_a), SequenceNumber(b, sub_b)
    assert (left < right) is ((a, sub_a) < (b, sub_b))
    assert (left <= right) is ((a, sub_a) <= (b, sub_b))
    assert (left > right) is (right < left)
    assert (left == right) is ((a, sub_a) == (b, sub_b))


@given(text=st.text(max_size=30))
def test_any_other_text_is_refused_with_the_one_error(text: str) -> None:
    """User input raises no other exception; an accepted text belongs to the grammar."""
    try:
        position = Position.parse(text)
    except InvalidPositionError:
        return
    assert Position.parse(str(position)) == position
