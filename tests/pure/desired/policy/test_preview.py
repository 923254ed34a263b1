"""What would change between pods."""

from tests.support.policy.clauses import world
from tests.support.policy.deciding import judging
from weft.desired.policy.preview import Pair, Restricted, applied, preview, world_of
from weft.model.policy import Namespace
from weft.model.value import replace

WEB = {"matchLabels": {"app": "web"}}


def test_what_a_policy_closes():
    before = judging(world())
    after = judging(
        world({"podSelector": WEB, "ingress": [{"ports": [{"port": "http"}, {"port": 80, "endPort": 90}]}]})
    )
    found = preview(before, after)
    assert found.restricted == (Restricted(pod="a/web", direction="ingress"),)
    assert found.freed == ()
    closed = ("other ports/tcp", "all ports/udp", "all ports/sctp", "icmp")
    assert found.pairs == tuple(
        Pair(source=name, target="a/web", closed=closed, opened=()) for name in ("a/db", "b/x", "a/v4")
    )
    back = preview(after, before)
    assert back.freed == found.restricted
    assert [pair.opened for pair in back.pairs] == [closed] * 3


def test_nothing_changes():
    known = judging(world({"podSelector": WEB}))
    found = preview(known, known)
    assert (found.restricted, found.freed, found.pairs) == ((), (), ())


def test_what_is_applied_replaces_what_has_its_name():
    known = judging(world({"podSelector": WEB}))
    (policy,) = known.policies
    web = next(pod for pod in known.pods if pod.name == "web")
    changed = applied(known, [replace(policy, ingress=None), replace(web, labels={}), Namespace(name="c", labels={})])
    assert [each.ingress for each in changed.policies] == [None]
    assert [pod.labels for pod in changed.pods if pod.name == "web"] == [{}]
    assert set(changed.namespaces) == {"a", "b", "c"}
    assert changed.networks == known.networks
    assert world_of(known.pods).policies == ()
