from __future__ import annotations

import pytest

from state.errors import InvalidStoreSettingError
from state.store.ownership import TaskShare


def test_a_share_is_read_back_from_the_name_of_its_znode() -> None:
    """There is one way to write it."""
    assert TaskShare.parse(str(TaskShare(999, 1000))) == TaskShare(999, 1000)
    for text in ("", "1-of-", "-1-of-3", "01-of-3", "1-of-3 ", "lister"):
        with pytest.raises(InvalidStoreSettingError, match="use the form 1-of-3"):
            TaskShare.parse(text)


@pytest.mark.parametrize(
    ("index", "total", "rule"),
    [
        (0, 0, "a total of 0 tasks is not possible; use 1 to 1000"),
        (0, 1001, "use 1 to 1000"),
        (3, 3, "no task 3 of 3; use 0 to 2"),
        (-1, 3, "no task -1 of 3"),
    ],
)
def test_a_share_that_is_not_possible_is_refused_with_the_rule(
    index: int, total: int, rule: str
) -> None:
    with pytest.raises(InvalidStoreSettingError, match=rule):
        TaskShare(index, total)
