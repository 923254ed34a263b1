"""Framing, acknowledgements and torn lists, on a socket that says what the test wants."""

import errno
import socket
import struct
from collections.abc import Sequence

import pytest

from weft.kernel.rtnetlink.attributes import Malformed, text
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket, messages_in

HEADER = struct.Struct("=IHHII")
ERROR, DONE, DATA, TORN, TLVS, ACK = 2, 3, 24, 0x10, 0x200, 0x4


def message(kind: int, body: bytes = b"", *, sequence: int = 1, flags: int = 0) -> bytes:
    return HEADER.pack(16 + len(body), kind, flags, sequence, 77) + body


def verdict(number: int, *, sequence: int = 1, words: str = "") -> bytes:
    tlvs = text(1, words) if words else b""
    body = struct.pack("=i", -number) + bytes(16) + tlvs
    return message(ERROR, body, sequence=sequence, flags=TLVS if words else 0)


def done(number: int = 0, *, sequence: int = 1, flags: int = 0) -> bytes:
    return message(DONE, struct.pack("=i", -number), sequence=sequence, flags=flags)


class Scripted:
    """A socket that answers with prepared datagrams, or raises the errors among them."""

    def __init__(self, answers: Sequence[bytes | OSError], *, sender: int = 0) -> None:
        self.answers = list(answers)
        self.sent: list[bytes] = []
        self.sender = sender

    def settimeout(self, seconds: None) -> None: ...

    def setsockopt(self, *option: object) -> None: ...

    def getsockname(self) -> tuple[int, int]:
        return 77, 0

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def recvfrom_into(self, buffer: bytearray, size: int, flags: int) -> tuple[int, tuple[int, int]]:
        assert (size, flags) == (0, socket.MSG_TRUNC)
        return self.recv_into(buffer), (self.sender if self.answers else 0, 0)

    def recv_into(self, buffer: bytearray, **_: int) -> int:
        answer = self.answers.pop(0) if self.answers else BlockingIOError(errno.EAGAIN, "empty")
        if isinstance(answer, OSError):
            raise answer
        room = len(buffer)
        buffer[: min(len(answer), room)] = answer[:room]
        return len(answer)


def speaking(*answers: bytes | OSError) -> tuple[NetlinkSocket, Scripted]:
    script = Scripted(answers)
    return NetlinkSocket(script), script  # type: ignore[arg-type]


ASK = Message(DATA, 0, b"ask!")


def test_only_the_last_of_a_batch_asks_for_an_acknowledgement() -> None:
    netlink, script = speaking(verdict(0, sequence=3))
    assert netlink.batch([ASK, ASK, ASK]) == {}
    [sent] = script.sent
    flags = [HEADER.unpack_from(sent, 20 * number)[2] for number in range(3)]
    assert flags == [1, 1, 1 | ACK]


def test_refusals_are_told_apart_by_sequence_number() -> None:
    netlink, _ = speaking(verdict(17, words="taken") + verdict(3, sequence=2), verdict(22, sequence=3))
    refused = netlink.batch([ASK, ASK, ASK])
    assert {position: (error.errno, error.extended) for position, error in refused.items()} == {
        0: (17, "taken"),
        1: (3, ""),
        2: (22, ""),
    }
    assert str(refused[0]) == "[Errno 17] File exists: taken"


def test_the_last_but_one_of_a_transaction_asks_for_an_acknowledgement() -> None:
    netlink, script = speaking(verdict(17, sequence=2), verdict(0, sequence=3))
    refused = netlink.transaction([ASK, ASK, ASK, ASK])
    assert {position: error.errno for position, error in refused.items()} == {1: 17}
    [sent] = script.sent
    assert [HEADER.unpack_from(sent, 20 * number)[2] for number in range(4)] == [1, 1, 1 | ACK, 1]
    assert [HEADER.unpack_from(sent, 20 * number)[3] for number in range(4)] == [1, 2, 3, 4]


def test_a_transaction_that_is_refused_as_a_whole_says_nothing_of_its_parts() -> None:
    netlink, _ = speaking(verdict(errno.EPERM), verdict(0, sequence=4), verdict(0, sequence=5))
    assert netlink.transaction([ASK, ASK, ASK])[0].errno == errno.EPERM
    assert netlink.transaction([ASK, ASK, ASK]) == {}


def test_answers_to_earlier_requests_are_passed_over() -> None:
    netlink, script = speaking(verdict(0), verdict(17), message(DATA, b"old"), verdict(0, sequence=2))
    netlink.request(ASK)
    netlink.request(ASK)
    assert script.answers == []


def test_what_does_not_come_from_the_kernel_is_dropped() -> None:
    script = Scripted([verdict(17), verdict(0)], sender=4711)
    NetlinkSocket(script).request(ASK)  # type: ignore[arg-type]
    assert script.answers == []


def test_an_answer_needs_no_acknowledgement() -> None:
    netlink, script = speaking(message(DATA, b"answer"))
    assert netlink.ask(ASK) == b"answer"
    assert HEADER.unpack_from(script.sent[0])[2] & ACK == 0


def test_a_question_that_is_refused() -> None:
    netlink, _ = speaking(verdict(errno.ENODEV, words="no such thing"))
    with pytest.raises(NetlinkError) as refused:
        netlink.ask(ASK)
    assert refused.value.errno == errno.ENODEV


def test_a_question_that_is_acknowledged_without_an_answer() -> None:
    netlink, _ = speaking(verdict(0))
    with pytest.raises(NetlinkError) as refused:
        netlink.ask(ASK)
    assert refused.value.errno == errno.ENOENT


@pytest.mark.parametrize("where", ["data", "done"])
def test_a_torn_list_is_read_again(where: str) -> None:
    torn = message(DATA, b"half", flags=TORN if where == "data" else 0) + done(flags=TORN if where == "done" else 0)
    netlink, script = speaking(
        torn, message(DATA, b"one1", sequence=2), message(DATA, b"two2", sequence=2) + done(sequence=2)
    )
    assert netlink.dump(DATA, b"") == [b"one1", b"two2"]
    assert len(script.sent) == 2


def test_a_list_that_never_holds_still() -> None:
    netlink, _ = speaking(*(done(sequence=number, flags=TORN) for number in range(1, 21)))
    with pytest.raises(NetlinkError) as given_up:
        netlink.dump(DATA, b"")
    assert given_up.value.errno == errno.EINTR


def test_a_list_may_be_refused_at_its_end() -> None:
    netlink, _ = speaking(message(DATA, b"one1"), done(errno.EINVAL))
    with pytest.raises(NetlinkError) as refused:
        netlink.dump(DATA, b"")
    assert refused.value.errno == errno.EINVAL


def test_lost_answers_leave_nothing_behind() -> None:
    full = OSError(errno.ENOBUFS, "full")
    netlink, script = speaking(full, verdict(17), full, verdict(0))
    with pytest.raises(NetlinkError) as lost:
        netlink.request(ASK)
    assert lost.value.errno == errno.ENOBUFS
    assert script.answers == []


def test_sequence_numbers_start_anew_long_before_they_end() -> None:
    netlink, script = speaking(verdict(0, sequence=2**31 + 1), verdict(0, sequence=1))
    netlink._sequence = 2**31
    netlink.request(ASK)
    netlink.request(ASK)
    assert [HEADER.unpack_from(sent)[3] for sent in script.sent] == [2**31 + 1, 1]


@pytest.mark.parametrize(
    "data", [b"short", message(DATA, b"body")[:-1], HEADER.pack(8, 0, 0, 0, 0), HEADER.pack(99, 0, 0, 0, 0)]
)
def test_datagrams_that_are_no_messages(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(messages_in(data))


LARGE = bytes(100_000)


def test_an_answer_that_was_cut_off_is_asked_for_again_and_finds_room() -> None:
    netlink, script = speaking(message(DATA, LARGE), message(DATA, LARGE, sequence=2))
    assert netlink.ask(ASK) == LARGE
    assert len(script.sent) == 2


def test_a_list_of_which_a_part_was_cut_off_is_read_to_its_end_and_asked_for_again() -> None:
    """The kernel begins no other list on a socket before that."""
    whole = [message(DATA, b"small", sequence=2), message(DATA, LARGE, sequence=2), done(sequence=2)]
    netlink, script = speaking(message(DATA, b"small"), message(DATA, LARGE), done(), *whole)
    assert netlink.dump(DATA, b"") == [b"small", LARGE]
    assert len(script.sent) == 2


def test_an_acknowledgement_that_was_cut_off_is_an_error() -> None:
    netlink, _ = speaking(message(ERROR, LARGE))
    with pytest.raises(NetlinkError, match="larger than any should be"):
        netlink.request(ASK)
