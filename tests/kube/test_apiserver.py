"""What weft relies on of the real API server, and of the fixture that runs it."""

from contextlib import closing
from itertools import islice
from typing import Any

import pytest

from tests.support import kubeobjects
from tests.support.kubeapi import Api, ApiError, Json
from tests.support.kubeobjects import NODES


def version_of(answer: Json) -> str:
    """The resourceVersion of a list or an object."""
    return str(answer["metadata"]["resourceVersion"])


def names(answer: Json) -> list[str]:
    return [node["metadata"]["name"] for node in answer["items"]]


def events(api: Api, count: int, **query: Any) -> list[tuple[str, Json]]:
    """The first events of a watch of all nodes."""
    with closing(api.watch(NODES, **query)) as stream:
        return [(event["type"], event["object"]) for event in islice(stream, count)]


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
        [(kind, node)] = events(apiserver.admin, 1)
        assert (kind, node["spec"].get("podCIDR")) == ("ADDED", None)
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
