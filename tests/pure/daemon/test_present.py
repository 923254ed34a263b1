"""What is known of the kernel: whose word is the newest."""

from tests.support import builders
from weft.daemon.planes.present import Present, differences
from weft.desired.backends import vxlan
from weft.model.kernel.objects import Key, Object, Route
from weft.model.value import replace
from weft.plan.diff import Delete, Put

WANTED = builders.wanted(builders.inputs(), [builders.lease(2, vxlan)])
[ROUTE] = [thing for thing in WANTED.values() if isinstance(thing, Route)]
OTHER = replace(ROUTE, via=builders.public_v4(9))


def test_steps_and_notices_move_it_on():
    present = Present(WANTED)
    present.did(Put(ROUTE))
    assert present.objects == {ROUTE.key: ROUTE}
    present.notice(ROUTE.key, OTHER)
    assert present.objects == {ROUTE.key: OTHER}
    present.notice(ROUTE.key, None)
    assert present.objects == {}
    present.did(Put(ROUTE))
    present.did(Delete(ROUTE))
    present.did(Delete(ROUTE))
    assert present.objects == {}


def test_a_look_replaces_it_but_for_what_was_noticed_meanwhile():
    present = Present(WANTED)
    link: Key = ("link", "flannel.1")
    present.notice(ROUTE.key, OTHER)
    with present.meanwhile() as newer:
        present.notice(link, WANTED[link])
        present.notice(ROUTE.key, None)
    present.notice(("link", "later"), WANTED[link])
    assert newer == {link, ROUTE.key}
    before = present.replace({ROUTE.key: ROUTE}, but=newer)
    assert present.objects == {link: WANTED[link]}
    assert before.keys() == {link, ("link", "later")}


def test_what_is_as_wanted_is_kept_once():
    present = Present(WANTED)
    present.notice(ROUTE.key, replace(ROUTE))
    assert present.objects[ROUTE.key] is ROUTE


def test_differences_are_shown_as_they_are_or_were():
    link: Key = ("link", "flannel.1")
    now: dict[Key, Object] = {ROUTE.key: OTHER}
    before: dict[Key, Object] = {ROUTE.key: ROUTE, link: WANTED[link]}
    assert differences(now, before) == {ROUTE.key: OTHER, link: WANTED[link]}
    assert differences(now, now) == {}
