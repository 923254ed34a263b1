"""A command's side of a call of a supervisor: what comes with the answer is taken, or else closed."""

import os
import select
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from typing import get_args, get_origin

import msgspec
import pytest

from weft.lab import protocol
from weft.lab.call import Call
from weft.lab.report import Nothing


@pytest.mark.parametrize("taken", [False, True])
def test_descriptors_that_are_not_taken_are_closed_with_the_call(tmp_path: Path, taken: bool):
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as ours:
        listener.bind(str(tmp_path / "lab"))
        listener.listen()
        read, write = os.pipe()
        with closing(Call(tmp_path / "lab", protocol.Capture("", ""))) as call:
            connection, _ = listener.accept()
            with connection:
                answer: protocol.Answer = protocol.Done(msgspec.Raw(msgspec.json.encode(Nothing())))
                socket.send_fds(connection, [msgspec.json.encode(answer) + b"\n"], [write])
            os.close(write)
            call.result()
            if taken:
                ours.callback(os.close, call.descriptors()[0])
        # The end of the pipe has come once nothing holds its other side.
        ready, _, _ = select.select([read], [], [], 0)
        os.close(read)
        assert bool(ready) is not taken


@pytest.mark.parametrize("kind", get_args(protocol.Request))
def test_each_request_says_what_its_answer_is(kind: type[protocol.Asked[object]]):
    [base] = kind.__orig_bases__
    assert get_origin(base) is protocol.Asked
    msgspec.json.Decoder(get_args(base)[0])  # a type that can be read
