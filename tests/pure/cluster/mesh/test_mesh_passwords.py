"""The file of a mesh's password: what is refused, and that it may be changed at any time."""

import logging
import os

import pytest

from weft.cluster.mesh.passwords import passwords_in
from weft.cluster.secretfile import SecretFile
from weft.model.errors import ConfigError
from weft.model.value import Secret


def opened(path):
    return SecretFile("--password-file", str(path), passwords_in)


GOOD, OLDER = "correct horse battery", "of the month before"


@pytest.mark.parametrize("text", [GOOD, f"{GOOD}\n", f"{GOOD}\r\n"])
async def test_a_line_is_a_password(tmp_path, text):
    (tmp_path / "p").write_text(text)
    assert await opened(tmp_path / "p").now() == (Secret(GOOD),)


async def test_a_second_line_is_the_one_before():
    read, write = os.pipe()
    os.write(write, f"{GOOD}\n{OLDER}\n".encode())
    os.close(write)
    assert await opened(f"/dev/fd/{read}").now() == (Secret(GOOD), Secret(OLDER))
    os.close(read)


@pytest.mark.parametrize(
    "content, seen",
    [
        (b"", "line 1 has 0 characters"),
        (b"elevenchars\n", "line 1 has 11 characters"),
        (b"twelve chars\n\n\n", None),
        (f"{GOOD}\nshort\n".encode(), "line 2 has 5 characters"),
        (f"{GOOD}\n{OLDER}\nand a third\n".encode(), "3 lines"),
        (b"\xff" * 20, "not text"),
        (b"weft1-abcdefghijkl\n", "line 1 begins as a password of 'weft mesh password' and is not whole"),
    ],
)
async def test_what_is_no_password_is_refused_and_not_shown(tmp_path, content, seen):
    file = tmp_path / "p"
    file.write_bytes(content)
    if seen is None:
        assert await opened(file).now() == (Secret("twelve chars"),)
        return
    with pytest.raises(ConfigError) as caught:
        opened(file)
    [problem] = caught.value.problems
    assert (problem.code, problem.where, problem.seen) == ("FLAG-001", f"--password-file: {file}", seen)
    assert not {"elevenchars", GOOD, "short"} & set(str(problem).replace(",", " ").split())


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        opened(tmp_path / "p")


async def test_a_changed_file_counts_for_the_next_link_and_a_spoilt_one_does_not(tmp_path, caplog):
    file = tmp_path / "p"
    file.write_text(OLDER)
    passwords = opened(file)
    file.write_text(f"{GOOD}\n{OLDER}\n")
    assert await passwords.now() == (Secret(GOOD), Secret(OLDER))
    with caplog.at_level(logging.WARNING):
        file.write_text("short")
        assert await passwords.now() == await passwords.now() == (Secret(GOOD), Secret(OLDER))
        file.unlink()
        assert await passwords.now() == (Secret(GOOD), Secret(OLDER))
    assert [record.message.partition(": ")[2] for record in caplog.records] != []
    assert caplog.text.count("going on with the earlier password") == 2


async def test_a_pipe_is_read_once(tmp_path):
    read, write = os.pipe()
    os.write(write, GOOD.encode())
    os.close(write)
    passwords = opened(f"/dev/fd/{read}")
    assert await passwords.now() == (Secret(GOOD),)
    os.close(read)
