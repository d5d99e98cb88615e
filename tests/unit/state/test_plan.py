from __future__ import annotations

import pytest

from state.plan import make_plan_id, plan_number


def test_a_plan_id_gives_its_number_back() -> None:
    """The number orders plans as an integer: 10 is after 9."""
    assert make_plan_id(10, "ab12") == "10-ab12"
    assert plan_number("10-ab12") > plan_number("9-ab12")
    assert plan_number("0-0") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "7-",
        "-ab",
        "x-ab",
        "7-AB",
        "7-a b",
        "7-ab\n",
        "7-a-b",
        "-7-ab",
        "7-" + "a" * 33,
        "1" * 19 + "-a",
        "٣-ab",
    ],
)
def test_a_text_that_is_not_a_plan_id_is_refused(text: str) -> None:
    """It would become the name of a znode."""
    with pytest.raises(ValueError, match="is not a plan id"):
        plan_number(text)


def test_a_plan_id_that_could_not_be_read_back_is_not_made() -> None:
    """Neither from a bad number nor from a bad nonce."""
    with pytest.raises(ValueError, match="is not a plan id"):
        make_plan_id(-1, "ab")
    with pytest.raises(ValueError, match="is not a plan id"):
        make_plan_id(1, "a/b")
