"""What weft relies on of the real API server, and of the fixture that runs it."""

import json
from contextlib import closing
from dataclasses import replace

import pytest

from tests.support import etcd
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import NOBODY, running
from tests.support.kubernetes.kubeapi import Api, ApiError, Json
from tests.support.kubernetes.kubeobjects import NODES
from tests.support.weftd import Cluster, Underlay, eventually


def version_of(answer: Json) -> str:
    """The resourceVersion of a list or an object."""
    return str(answer["metadata"]["resourceVersion"])


def names(answer: Json) -> list[str]:
    return [node["metadata"]["name"] for node in answer["items"]]


def refusal(api: Api) -> str:
    """What the server says against a list of all nodes; nothing when it may be had."""
    try:
        api.get(NODES)
    except ApiError as error:
        return str(error)
    return ""


def test_a_node_without_a_podcidr_gets_one_from_the_controller_manager(apiserver):
    node = kubeobjects.add_node(apiserver.admin, "n1")
    assert node["spec"]["podCIDRs"] == [node["spec"]["podCIDR"]]
    assert node["spec"]["podCIDR"].startswith("10.244.")


def test_a_node_keeps_the_podcidrs_that_it_comes_with(apiserver):
    node = kubeobjects.add_node(apiserver.admin, "n1", "10.244.200.0/24", "fd44::/64")
    assert node["spec"]["podCIDRs"] == ["10.244.200.0/24", "fd44::/64"]
    with pytest.raises(ApiError, match="node updates may not change podCIDR") as refused:
        apiserver.admin.patch(f"{NODES}/n1", {"spec": {"podCIDR": "10.244.201.0/24"}})
    assert refused.value.code == 422


def test_without_the_controller_manager_a_node_has_no_podcidr(apiserver, controllers):
    controllers.pause()
    try:
        kubeobjects.add_node(apiserver.admin, "n1", wait=False)
        assert "podCIDR" not in apiserver.admin.get(f"{NODES}/n1")["spec"]
    finally:
        controllers.resume()


def test_a_list_comes_in_pages_of_one_state(apiserver):
    for number in range(5):
        kubeobjects.add_node(apiserver.admin, f"n{number}")
    page = apiserver.admin.get(NODES, limit=2)
    first, seen = version_of(page), names(page)
    kubeobjects.add_node(apiserver.admin, "n00")
    while token := page["metadata"].get("continue"):
        page = apiserver.admin.get(NODES, **{"limit": 2, "continue": token})
        seen += names(page)
        assert version_of(page) == first
    assert seen == ["n0", "n1", "n2", "n3", "n4"]


def test_a_patch_of_the_status_changes_annotations_and_one_that_changes_nothing_makes_no_event(apiserver):
    api = apiserver.admin
    kubeobjects.add_node(api, "n1")
    with api.watch(NODES, resourceVersion=version_of(api.get(NODES))) as events:
        once = kubeobjects.annotate(api, "n1", a="1", b="2")
        assert version_of(kubeobjects.annotate(api, "n1", a="1")) == version_of(once)
        kubeobjects.annotate(api, "n1", a=None)
        changes = [next(events), next(events)]
    assert [event["type"] for event in changes] == ["MODIFIED", "MODIFIED"]
    assert [event["object"]["metadata"]["annotations"] for event in changes] == [{"a": "1", "b": "2"}, {"b": "2"}]


def test_a_deleted_node_comes_as_it_last_was_with_the_version_of_its_end(apiserver):
    api = apiserver.admin
    before = kubeobjects.add_node(api, "n1")
    with api.watch(NODES, resourceVersion=version_of(api.get(NODES))) as events:
        api.delete(f"{NODES}/n1")
        event = next(events)
    assert event["type"] == "DELETED"
    assert event["object"]["spec"]["podCIDR"] == before["spec"]["podCIDR"]
    assert int(version_of(event["object"])) > int(version_of(before))


def test_a_watch_brings_a_bookmark_before_its_time_is_over_and_then_ends(apiserver):
    api = apiserver.admin
    kubeobjects.add_node(api, "n1")

    def bookmarks() -> list[Json]:
        # Only what is newer than the beginning of the watch makes bookmarks: here, a change that it does not show.
        query = {"allowWatchBookmarks": "true", "timeoutSeconds": 4, "fieldSelector": "metadata.name=other"}
        with api.watch(NODES, resourceVersion=version_of(api.get(NODES)), **query) as events:
            changed.append(kubeobjects.annotate(api, "n1", a=str(len(changed))))
            return list(events)

    changed: list[Json] = []
    # It is due two seconds before the end: a server that is late leaves it out, and one may come again.
    bookmark, *more = eventually(bookmarks, seconds=60)
    assert {event["type"] for event in (bookmark, *more)} == {"BOOKMARK"}
    assert version_of(bookmark["object"]) == version_of(changed[-1])
    assert "name" not in bookmark["object"]["metadata"]


def test_compaction_alone_expires_no_watch(apiserver):
    old = version_of(kubeobjects.add_node(apiserver.admin, "n1", "10.244.200.0/24"))
    kubeobjects.add_node(apiserver.admin, "n2", "10.244.201.0/24")
    apiserver.etcd.compact()
    with apiserver.admin.watch(NODES, resourceVersion=old) as events:
        assert next(events)["object"]["metadata"]["name"] == "n2"


def test_a_watch_from_before_a_restart_has_expired_which_the_stream_says(own_apiserver):
    api = own_apiserver.admin
    old = version_of(kubeobjects.add_node(api, "n1", "10.244.1.0/24"))
    kubeobjects.add_node(api, "n2", "10.244.2.0/24")
    own_apiserver.kill()
    own_apiserver.start()
    with api.watch(NODES, resourceVersion=old) as events:
        [event] = events
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_a_list_that_has_expired_between_its_pages_can_be_continued_in_the_present(own_apiserver):
    api = own_apiserver.admin
    for number in (1, 2, 3):
        kubeobjects.add_node(api, f"n{number}", f"10.244.{number}.0/24")
    page = api.get(NODES, limit=1)
    kubeobjects.annotate(api, "n3", a="1")
    own_apiserver.kill()
    own_apiserver.start()
    own_apiserver.etcd.compact()
    with pytest.raises(ApiError) as expired:
        api.get(NODES, **{"limit": 1, "continue": page["metadata"]["continue"]})
    assert (expired.value.code, expired.value.status["reason"]) == (410, "Expired")
    rest = api.get(NODES, **{"continue": expired.value.status["metadata"]["continue"]})
    assert names(rest) == ["n2", "n3"]


def test_a_killed_server_cuts_its_watches_and_keeps_what_it_was_told(own_apiserver):
    api = own_apiserver.admin
    with api.watch(NODES, resourceVersion=version_of(api.get(NODES))) as events:
        kubeobjects.add_node(api, "n1", "10.244.1.0/24")
        assert next(events)["type"] == "ADDED"
        own_apiserver.kill()
        assert next(events, None) is None
    with pytest.raises(ConnectionRefusedError):
        api.get(NODES)
    own_apiserver.start()
    assert names(api.get(NODES)) == ["n1"]


def test_what_rbac_forbids_is_refused_by_verb_and_resource_until_it_is_granted(apiserver):
    api = apiserver.api(kubeobjects.service_account(apiserver.admin, "kube-flannel", "flannel"))
    flannel = "system:serviceaccount:kube-flannel:flannel"
    assert f'403: nodes is forbidden: User "{flannel}" cannot list resource "nodes" in API group ""' in refusal(api)
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    kubeobjects.grant(apiserver.admin, "flannel", kubeobjects.account("kube-flannel", "flannel"), rules)
    eventually(lambda: not refusal(api))  # a rule takes effect a moment after it is made
    with pytest.raises(ApiError, match='cannot watch resource "nodes"'), api.watch(NODES):
        pass


def test_who_asks_is_known_by_token_or_certificate(apiserver):
    assert '403: nodes is forbidden: User "nobody"' in refusal(apiserver.api(NOBODY))
    assert '403: nodes is forbidden: User "client"' in refusal(apiserver.client)
    assert '403: nodes is forbidden: User "system:anonymous"' in refusal(apiserver.api())
    assert refusal(apiserver.api("wrong")) == "401: Unauthorized"


def test_a_token_bound_to_a_pod_is_its_account_s(apiserver):
    kubeobjects.add_node(apiserver.admin, "n1")
    kubeobjects.service_account(apiserver.admin, "kube-flannel", "flannel")
    pod = kubeobjects.add_pod(apiserver.admin, "kube-flannel", "weft-x", "n1", account="flannel")
    token = kubeobjects.service_account(apiserver.admin, "kube-flannel", "flannel", pod=pod)
    assert 'User "system:serviceaccount:kube-flannel:flannel"' in refusal(apiserver.api(token))


def test_kubectl_of_the_same_version_reads_our_kubeconfig(apiserver):
    kubeobjects.add_node(apiserver.admin, "n1")
    assert apiserver.kubectl("get", "nodes", "-o", "name") == "node/n1\n"
    assert json.loads(apiserver.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"] == "v1.34.4"


def test_nodes_of_an_underlay_reach_a_server_in_it(tmp_path):
    underlay = Underlay(tmp_path / "etcd", etcd.wheel())
    try:
        cluster = Cluster(underlay, tmp_path)
        with running(tmp_path / "apiserver", underlay.etcd, netns=underlay.switch) as server, closing(cluster):
            node = cluster.node(1)
            kubeobjects.add_node(server.admin, "n1", "10.244.1.0/24")
            assert server.url.startswith("https://172.31.0.254:")
            assert names(replace(server.admin, inside=node.netns.call).get(NODES)) == ["n1"]
            assert server.kubectl("get", "nodes", "-o", "name") == "node/n1\n"
    finally:
        underlay.close()
