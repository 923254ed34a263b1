"""What a peer's objects carry, together."""

from weft.daemon.planes.traffic import Traffic, together


def test_of_a_peer_with_an_object_for_each_family_it_is_the_sum():
    parts = [Traffic(sent_bytes=1, received_bytes=2, heard=30.0), Traffic(sent_bytes=10, received_bytes=20, heard=4.0)]
    assert together(parts) == Traffic(sent_bytes=11, received_bytes=22, heard=4.0)
    assert together([*parts, Traffic(sent=5)]) == Traffic(sent=5, sent_bytes=11, received_bytes=22, heard=4.0)


def test_what_nobody_counts_is_not_nothing():
    assert together([]) == Traffic()
    assert together([Traffic()]) == Traffic()
