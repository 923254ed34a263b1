"""What a store says, put together."""

from tests.support import builders
from weft.desired.backends import vxlan
from weft.model.cluster import Changed, Malformed, Word, changed
from weft.model.errors import Problem


def test_the_newest_word_for_an_id_counts_and_keeps_its_place_in_the_order():
    one, two, three = (builders.lease(number, vxlan) for number in (1, 2, 3))
    bad = Malformed(id="bad", problem=Problem(code="ADDR-002", where="lease", seen="x"))
    words: list[tuple[str, Word]] = [
        (one.id, one),
        (two.id, two),
        ("bad", None),
        (three.id, None),
        (three.id, three),
        (one.id, None),
        (two.id, two),
        ("bad", bad),
    ]
    assert changed(words, (7,)) == Changed(put=(three, two), gone=(one.id,), malformed=(bad,), mark=(7,))
    assert changed([], (7,)) == Changed(mark=(7,))
