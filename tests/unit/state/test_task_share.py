from __future__ import annotations

import pytest

from state.errors import InvalidStoreSettingError
from state.state_store import TaskShare


def test_a_share_is_written_and_read_back() -> None:
    """In the form of its znode's name; another form is for messages."""
    share = TaskShare(1, 3)
    assert (str(share), share.label) == ("1-of-3", "task 1 of 3")
    assert TaskShare.parse("1-of-3") == share
    assert str(TaskShare(999, 1000)) == "999-of-1000"


@pytest.mark.parametrize(
    ("index", "total", "rule"),
    [
        (0, 0, "a total of 0 tasks is not possible; use 1 to 1000"),
        (0, 1001, "use 1 to 1000"),
        (3, 3, "no task 3 of 3; they are counted from 0, so use 0 to 2"),
        (-1, 3, "no task -1 of 3"),
    ],
)
def test_a_share_that_is_not_possible_is_refused_with_the_rule(
    index: int, total: int, rule: str
) -> None:
    """Tasks are counted from 0, and there are at most 1000."""
    with pytest.raises(InvalidStoreSettingError, match=rule):
        TaskShare(index, total)


@pytest.mark.parametrize(
    "text", ["", "1", "1-of-", "-1-of-3", "01-of-3", "1-of-3 ", "1-of-03", "lister"]
)
def test_any_other_text_is_refused(text: str) -> None:
    """There is one way to write a share."""
    with pytest.raises(InvalidStoreSettingError, match="use the form 1-of-3"):
        TaskShare.parse(text)
