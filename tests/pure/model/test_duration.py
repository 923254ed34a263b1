"""Times as people write them."""

import pytest

from weft.model.text import seconds_in


@pytest.mark.parametrize(
    "text, seconds",
    [("90s", 90), ("5min", 300), ("5m", 300), ("2h", 7200), ("1d 12h", 129600), ("1.5h", 5400), ("1h30min", 5400)],
)
def test_a_time(text, seconds):
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "5 h x", "-5s", "5mi"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match="expected for example 90s"):
        seconds_in(text)
