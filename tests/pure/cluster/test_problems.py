"""What is said of an etcd that refuses, fails or is none: code, words, and whether to try again."""

import asyncio
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import pytest
from grpclib import GRPCError, Status

from weft.cluster.etcd import problems
from weft.cluster.etcd.access import Access
from weft.cluster.kube import problems as kube
from weft.cluster.reach import Endpoint
from weft.model.errors import ConfigError, Unavailable, WeftError

ENDPOINT = Endpoint(url="https://etcd:2379", host="etcd", port=2379, tls=True)
NOBODY = Access(endpoints=("https://etcd:2379",))


def facts(error):
    [problem] = error.problems
    assert problem.where == "https://etcd:2379"
    return type(error), problem.code, problem.seen


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.CANCELLED, Status.ABORTED])
def test_what_passes_is_tried_again(status: Status):
    told = problems.answered(ENDPOINT, GRPCError(status, "later"), NOBODY)
    assert facts(told) == (Unavailable, "STORE-001", "etcd says: later")


@pytest.mark.parametrize("status", [Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.INVALID_ARGUMENT])
@pytest.mark.parametrize(
    "access, who",
    [
        (NOBODY, "no user (--etcd-username is not given)"),
        (Access(endpoints=NOBODY.endpoints, user="weft"), "user 'weft'"),
    ],
)
def test_a_refusal_names_the_user(status: Status, access: Access, who: str):
    told = problems.answered(ENDPOINT, GRPCError(status, "denied"), access)
    assert facts(told) == (ConfigError, "STORE-002", f"etcd says: denied, to {who}")
    assert told.problems[0].hint.startswith("Check --etcd-username")


@pytest.mark.parametrize("status", [Status.UNIMPLEMENTED, Status.UNKNOWN])
def test_what_is_no_etcd_is_not_tried_again(status: Status):
    told = problems.answered(ENDPOINT, GRPCError(status), NOBODY)
    assert facts(told) == (ConfigError, "STORE-002", f"etcd says: {status.name}")
    assert told.problems[0].hint.startswith("Check --etcd-endpoints")


def test_an_etcd_that_is_ill_may_get_well():
    told = problems.answered(ENDPOINT, GRPCError(Status.RESOURCE_EXHAUSTED, "no space"), NOBODY)
    assert facts(told) == (Unavailable, "STORE-002", "etcd says: no space")
    assert told.problems[0].hint.startswith("See etcd's own log")


def test_an_answer_that_is_too_large():
    told = problems.large(ENDPOINT, "5 MiB")
    assert facts(told) == (problems.TooLargeError, "STORE-002", "5 MiB")
    assert told.problems[0].expected == "4194304 bytes at most"


def test_who_does_not_answer_and_who_has_no_address():
    assert facts(problems.silent(ENDPOINT, "gone")) == (Unavailable, "STORE-001", "gone")
    unresolved = problems.unresolved(ENDPOINT, "no address")
    assert facts(unresolved) == (Unavailable, "STORE-001", "no address")
    assert unresolved.problems[0].hint.startswith("Correct --etcd-endpoints, or this machine's DNS")


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "text")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    "error, seen, hint",
    [
        (tls("WRONG_VERSION_NUMBER"), "no TLS spoken there", "Use http:// for this endpoint"),
        (tls("RECORD_LAYER_FAILURE"), "no TLS spoken there", "Use http:// for this endpoint"),
        (
            tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            "etcd broke off the TLS handshake: tlsv13 alert certificate required",
            "Give a certificate that etcd's CA signed: --etcd-certfile and --etcd-keyfile",
        ),
        (tls("NO_CIPHERS_AVAILABLE"), "TLS failed: no ciphers available", ""),
        (tls(""), "TLS failed: text", ""),
    ],
)
def test_a_handshake_that_fails(error: ssl.SSLError, seen: str, hint: str):
    told = problems.handshake(ENDPOINT, error)
    assert facts(told) == (ConfigError, "STORE-002", seen)
    assert told.problems[0].hint == hint


def test_a_certificate_that_is_not_trusted():
    error = ssl.SSLCertVerificationError(1, "text")
    error.verify_message = "self-signed certificate"
    error.reason = "CERTIFICATE_VERIFY_FAILED"
    told = problems.handshake(ENDPOINT, error)
    assert facts(told) == (ConfigError, "STORE-002", "etcd's certificate is not trusted: self-signed certificate")
    assert told.problems[0].hint.startswith("Give the CA that signed it as --etcd-cafile")


async def examined(answer: bytes | None) -> WeftError | None:
    """What is found at an endpoint without TLS that says this, or hangs up at once."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is not None:
            asked.append(await reader.read(64))
            writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        async def connect(_: Endpoint) -> socket.socket:
            return socket.create_connection(("127.0.0.1", port))

        reach: Any = SimpleNamespace(patience=20.0, open=connect)
        found = await problems.Examiner(reach).diagnose(ENDPOINT, None)
    # RFC 9113 §3.4: the client's preface, then SETTINGS, here an empty one.
    assert answer is None or asked[0] == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    return found


@pytest.mark.parametrize(
    "answer, seen",
    [
        (b"\0\0\0\x04\0\0\0\0\0", None),
        (b"", None),
        (None, None),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an answer that begins with b'HTTP/1.1 400 Bad'"),
        (b"\0\0\0\x05", "an answer that begins with b'\\x00\\x00\\x00\\x05'"),
        (b"\x15\x03\x01\0\x02\x02\x46", "TLS is spoken there"),
    ],
)
def test_what_listens_there_is_told_by_its_first_words(answer: bytes | None, seen: str | None):
    found = asyncio.run(examined(answer))
    assert (None if found is None else facts(found)[1:]) == (None if seen is None else ("STORE-002", seen))


@pytest.mark.parametrize("status, busy", [(429, True), (500, False), (503, True), (504, False)])
def test_an_api_server_that_is_busy_says_when_it_wants_to_be_asked_again(status: int, busy: bool):
    told = kube.answered("https://api", "GET", "/api/v1/nodes", status, b"later", after="7")
    assert isinstance(told, kube.BusyError) == busy
    assert isinstance(told, kube.BusyError) == (getattr(told, "seconds", None) == 7)
    assert isinstance(told, Unavailable)
    assert told.problems[0].code == "STORE-001"


def test_a_right_is_named_as_a_role_has_it_and_a_namespace_that_ends_lacks_none():
    def told(path: str, body: bytes = b"", method: str = "GET") -> Any:
        return kube.answered("https://k", method, path, 403, body).problems[0]

    assert told("/api/v1/nodes/n1/status", method="PATCH").hint.endswith(
        '- {apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"]}'
    )
    version = "/apis/policy.networking.k8s.io/v1beta1"
    assert told(version).hint.endswith(f'- {{nonResourceURLs: ["{version}"], verbs: ["get"]}}')
    assert told(f"{version}/clusternetworkpolicies?watch=1").hint.endswith(
        '- {apiGroups: ["policy.networking.k8s.io"], resources: ["clusternetworkpolicies"], verbs: ["watch"]}'
    )
    ends = b'{"message": "it ends", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}'
    assert told("/api/v1/namespaces/job/events", ends, "POST").code == "STORE-002"
    assert told("/api/v1/namespaces/job/events", b"{}", "POST").code == "API-001"
