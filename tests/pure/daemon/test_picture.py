"""What is known of the kernel: whose word is the newest."""

from tests.support import builders
from weft.daemon.planes.picture import Picture, differences
from weft.desired.backends import vxlan
from weft.model.objects import Key, Object, Route
from weft.model.value import replace
from weft.plan.diff import Delete, Put

WANTED = builders.wanted(builders.inputs(), [builders.lease(2, vxlan)])
[ROUTE] = [thing for thing in WANTED.values() if isinstance(thing, Route)]
OTHER = replace(ROUTE, via=builders.public_v4(9))


def test_steps_and_notices_move_it_on():
    picture = Picture(WANTED)
    picture.did(Put(ROUTE))
    assert picture.objects == {ROUTE.key: ROUTE}
    picture.notice(ROUTE.key, OTHER)
    assert picture.objects == {ROUTE.key: OTHER}
    picture.notice(ROUTE.key, None)
    assert picture.objects == {}
    picture.did(Put(ROUTE))
    picture.did(Delete(ROUTE))
    picture.did(Delete(ROUTE))
    assert picture.objects == {}


def test_a_look_replaces_it_but_for_what_was_noticed_meanwhile():
    picture = Picture(WANTED)
    link: Key = ("link", "flannel.1")
    picture.notice(ROUTE.key, OTHER)
    with picture.meanwhile() as newer:
        picture.notice(link, WANTED[link])
        picture.notice(ROUTE.key, None)
    picture.notice(("link", "later"), WANTED[link])
    assert newer == {link, ROUTE.key}
    before = picture.replace({ROUTE.key: ROUTE}, but=newer)
    assert picture.objects == {link: WANTED[link]}
    assert before.keys() == {link, ("link", "later")}


def test_what_is_as_wanted_is_kept_once():
    picture = Picture(WANTED)
    picture.notice(ROUTE.key, replace(ROUTE))
    assert picture.objects[ROUTE.key] is ROUTE


def test_differences_are_shown_as_they_are_or_were():
    link: Key = ("link", "flannel.1")
    now: dict[Key, Object] = {ROUTE.key: OTHER}
    before: dict[Key, Object] = {ROUTE.key: ROUTE, link: WANTED[link]}
    assert differences(now, before) == {ROUTE.key: OTHER, link: WANTED[link]}
    assert differences(now, now) == {}
