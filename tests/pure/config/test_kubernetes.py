"""What a daemon in Kubernetes is told besides its flags."""

import pytest

from weft.config.flags import parse_flags
from weft.config.kubernetes import Surroundings, annotation_prefix
from weft.model.errors import ConfigError
from weft.model.value import replace

KUBE = ("--kube-subnet-mgr",)


def problems(*argv, **environ):
    with pytest.raises(ConfigError) as raised:
        parse_flags(argv or KUBE, environ)
    return raised.value.problems


def around(environ):
    """What is read of the variables, which are kept, too."""
    found = parse_flags(KUBE, environ).surroundings
    assert found.environ == environ
    return replace(found, environ={})


@pytest.mark.spec("flannel.md 11.6/annotation-prefix")
@pytest.mark.parametrize(
    "text, name",
    [
        ("flannel.alpha.coreos.com", "flannel.alpha.coreos.com/backend-type"),
        ("flannel.alpha.coreos.com/", "flannel.alpha.coreos.com/backend-type"),
        ("flannel.alpha.coreos.com/prefix", "flannel.alpha.coreos.com/prefix-backend-type"),
        ("flannel.alpha.coreos.com/prefix-", "flannel.alpha.coreos.com/prefix-backend-type"),
        ("org.com", "org.com/backend-type"),
        ("org9.com", "org9.com/backend-type"),
        ("org.com/9", "org.com/9-backend-type"),
        ("FOO.org.com", "FOO.org.com/backend-type"),
    ],
)
def test_a_prefix_begins_the_names_of_annotations(text, name):
    assert annotation_prefix(text) + "backend-type" == name
    options = parse_flags([*KUBE, f"--kube-annotation-prefix={text}"], {"NODE_NAME": "n1"})
    assert options.kube_annotation_prefix == annotation_prefix(text)


@pytest.mark.spec("flannel.md 11.6/annotation-prefix")
@pytest.mark.parametrize("text", ["", "org", "org/", "org/prefix", "org.COM", "org.com/PREFIX", "a/b/c", "a.b/c/d"])
def test_a_prefix_that_no_annotation_can_have(text):
    [problem] = problems(*KUBE, f"--kube-annotation-prefix={text}", NODE_NAME="n1")
    assert problem.where == "--kube-annotation-prefix"
    assert "a prefix with one slash" in problem.expected or "a domain with a dot" in problem.expected


@pytest.mark.spec("flannel.md §1.4/node-name", "flannel.md §1.4/pod-name")
def test_the_node_is_named_or_its_pod_is():
    assert around({"NODE_NAME": "n1"}) == Surroundings(node="n1")
    pod = {"POD_NAME": "p", "POD_NAMESPACE": "kube-flannel"}
    assert around(pod) == Surroundings(pod="p", namespace="kube-flannel")


def test_the_api_of_a_pod():
    environ = {"NODE_NAME": "n1", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert around(environ) == Surroundings(node="n1", host="10.96.0.1", port="443")


@pytest.mark.spec("flannel.md §1.4/pod-name")
@pytest.mark.parametrize(
    "environ, words",
    [({}, "none"), ({"POD_NAME": "p"}, "only POD_NAME"), ({"POD_NAMESPACE": "s"}, "only POD_NAMESPACE")],
)
def test_without_a_name_the_start_ends(environ, words):
    [problem] = problems(*KUBE, **environ)
    assert problem.where == "NODE_NAME"
    assert problem.seen.endswith(words)


@pytest.mark.spec("flannel.md §1.4/event-queue-depth")
def test_the_depth_of_a_queue_is_checked_and_not_needed():
    options = parse_flags(KUBE, {"NODE_NAME": "n1", "EVENT_QUEUE_DEPTH": "-1"})
    assert options.warnings == (
        "EVENT_QUEUE_DEPTH does nothing: there is no queue of events, but one newest state for each node",
    )
    [problem] = problems(*KUBE, NODE_NAME="n1", EVENT_QUEUE_DEPTH="many")
    assert (problem.where, problem.seen, problem.expected) == ("EVENT_QUEUE_DEPTH", "'many'", "a whole number")


@pytest.mark.spec("flannel.md §1.4/cont-when-cache-not-ready")
def test_going_on_without_a_list_is_what_weft_does_anyway():
    options = parse_flags(KUBE, {"NODE_NAME": "n1", "CONT_WHEN_CACHE_NOT_READY": "true"})
    [warning] = options.warnings
    assert warning.startswith("CONT_WHEN_CACHE_NOT_READY does nothing: weft always starts with what it knows")


def test_without_the_flag_the_variables_are_not_looked_at():
    options = parse_flags([], {"POD_NAME": "p", "EVENT_QUEUE_DEPTH": "many"})
    assert (options.surroundings, options.warnings) == (Surroundings(), ())


def test_flags_of_the_other_store_have_no_effect():
    environ = {"NODE_NAME": "n1", "FLANNELD_ETCD_PREFIX": "/p"}
    assert parse_flags(KUBE, environ).warnings == (
        "FLANNELD_ETCD_PREFIX has no effect: with --kube-subnet-mgr leases are not in etcd",
    )
    assert parse_flags(["--kubeconfig-file=k"], {}).warnings == (
        "--kubeconfig-file has no effect: it needs --kube-subnet-mgr",
    )
