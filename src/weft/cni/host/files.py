"""Files below a root descriptor, and nothing outside it.

The root is the caller's: paths of plugin configuration come from its mount namespace. No other module of `cni/` opens
files, but for `weft.cni.host.sysctls`. A new file is written under a name of ours first, then renamed (renameat2(2)).
"""

import ctypes
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Final, TypeVar

from weft.cni.host.openat import encoded, openat2
from weft.kernel import statefiles
from weft.kernel.statefiles import Spoilt

T = TypeVar("T")

# No configuration and no state of a plugin is near this size; it bounds what a wrong path can cost.
_MAX_READ: Final = 16 << 20
_CHUNK: Final = 1 << 16
# How long a lock is waited for that another program may hold: less than a client waits for its answer.
_LOCK_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05

# How the names of files begin that are being written and have not got their own name yet.
TEMPORARY: Final = ".weft-"

_FLOCK: Final = Struct("@hhqqi")  # struct flock: type, whence, start, length, pid (0 for this kind of lock)
_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2


class RootedFiles:
    """Every path is absolute in the root (`/var/lib/cni/x`), symbolic links stay inside it.

    Failures are `OSError` with the kernel's errno. Modes are exact: the umask does not apply. Nothing is fsynced: no
    file of a plugin outlives a boot in value (settled.md §9). With `own` a file that is not ours is spoilt.
    """

    def __init__(self, root: int, *, own: bool = False) -> None:
        self._root = root
        self._own = own

    def _open(self, path: str, flags: int, mode: int = 0) -> int:
        return openat2(self._root, path, flags, mode)

    def _beside(self, path: str, act: Callable[[int, str], T]) -> T:
        """On the last part of `path` links are not followed."""
        encoded(path)
        directory, _, name = path.rstrip("/").rpartition("/")
        if name in {"", ".", ".."}:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        parent = self._open(directory or "/", os.O_PATH | os.O_DIRECTORY)
        try:
            return act(parent, name)
        except OSError as error:
            # What was done had a part of the path, or a temporary name; people know the whole.
            raise OSError(error.errno, error.strerror, path) from error
        finally:
            os.close(parent)

    def read(self, path: str) -> bytes:
        """`Spoilt` if it is no regular file, or larger than any of ours."""
        # O_NONBLOCK: a FIFO in the place of a file must not hang the reader; for files it means nothing.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | (os.O_NOFOLLOW if self._own else 0)
        try:
            fd = self._open(path, flags)
        except OSError as error:
            if self._own and error.errno in statefiles.NO_FILE:
                raise Spoilt(error.errno, "not a regular file", path) from None
            raise
        try:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                raise Spoilt(errno.EINVAL, "not a regular file", path)
            if self._own and seen.st_uid not in (0, os.geteuid()):
                raise Spoilt(errno.EINVAL, f"belongs to user {seen.st_uid}", path)
            parts: list[bytes] = []
            left = _MAX_READ
            while left >= 0:
                wanted = min(left + 1, _CHUNK)
                parts.append(os.read(fd, wanted))
                if len(parts[-1]) < wanted:  # less than asked for: that was the end
                    return b"".join(parts)
                left -= wanted
            raise Spoilt(errno.EFBIG, f"larger than {_MAX_READ} bytes", path)
        finally:
            os.close(fd)

    def write_new(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Make a file that is complete from its first moment; `FileExistsError` if the name is taken.

        A crash leaves the whole file or at most a temporary one.
        """

        def write(parent: int, name: str) -> None:
            with _temporary(parent, data, mode) as fresh:
                error = _rename(parent, fresh, name, _RENAME_NOREPLACE)
                if error == errno.EEXIST:
                    raise FileExistsError(error, os.strerror(error))
                if error:  # a rename that cannot refuse
                    os.link(fresh, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
                    os.unlink(fresh, dir_fd=parent)

        self._beside(path, write)

    def replace(self, path: str, data: bytes, *, mode: int = 0o600, parents: int | None = None) -> None:
        """Put `data` in place of whatever is there, by rename: a reader sees the old content or the new.

        With `parents` missing directories on the way are made, with that mode.
        """

        def write(parent: int, name: str) -> None:
            with _temporary(parent, data, mode) as fresh:
                _put(parent, fresh, name)

        try:
            self._beside(path, write)
        except FileNotFoundError:
            if parents is None:
                raise
            self.makedirs(path.rpartition("/")[0], mode=parents)
            self._beside(path, write)

    def check_room(self, size: int, files: int) -> None:
        """Raise the `OSError` that so many bytes in so many new files would meet now, as far as the disk tells."""
        seen = os.fstatvfs(self._root)
        # What has no limit counts nothing.
        full = seen.f_blocks > 0 and seen.f_bfree * seen.f_frsize < size
        full |= seen.f_files > 0 and seen.f_ffree < files
        if wrong := errno.EROFS if seen.f_flag & os.ST_RDONLY else errno.ENOSPC if full else 0:
            raise OSError(wrong, os.strerror(wrong))

    def rewrite(self, path: str, data: bytes) -> None:
        """Write over the old content; costs an eighth of `replace`. For hints only: a crash may leave a mixture."""
        try:
            fd = self._open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            self.replace(path, data)
            return
        try:
            os.pwrite(fd, data, 0)
            # Not to nothing first: ext4 would then write to the disk when the file is closed.
            os.ftruncate(fd, len(data))
        finally:
            os.close(fd)

    def unlink(self, path: str) -> None:
        self._beside(path, lambda parent, name: os.unlink(name, dir_fd=parent))

    def set_aside(self, path: str) -> str:
        """Rename what lies there, so that the name is free; return the new name, empty if that is impossible."""
        return self._beside(path, lambda parent, name: statefiles.set_aside(name, directory=parent))

    def list(self, path: str) -> list[str]:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def connect(self, path: str, *, seconds: float) -> socket.socket:
        """Return a unix stream socket that is connected to this name and waits at most so long for anything."""
        fd = self._open(path, os.O_PATH)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.settimeout(seconds)
            sock.connect(f"/proc/self/fd/{fd}")
        except BaseException:
            sock.close()
            raise
        finally:
            os.close(fd)
        return sock

    def makedirs(self, path: str, *, mode: int = 0o755) -> None:
        try:
            os.close(self._open(path, os.O_PATH | os.O_DIRECTORY))
        except FileNotFoundError:
            directory, _, _ = path.rstrip("/").rpartition("/")
        else:
            return
        if directory:
            self.makedirs(directory, mode=mode)

        def make(parent: int, name: str) -> None:
            with suppress(FileExistsError):  # another process has made it just now
                os.mkdir(name, mode, dir_fd=parent)
                # The umask belongs to the whole process and cannot be changed for one thread.
                os.chmod(name, mode, dir_fd=parent)

        self._beside(path, make)

    def stamp(self, path: str) -> tuple[int, int, int]:
        """Return device, inode and modification time (ns) of a directory: equal stamps mean nothing came or went."""
        fd = self._open(path, os.O_PATH | os.O_DIRECTORY)
        try:
            seen = os.fstat(fd)
        finally:
            os.close(fd)
        return seen.st_dev, seen.st_ino, seen.st_mtime_ns

    def modified(self, path: str) -> int:
        """In nanoseconds."""
        fd = self._open(path, os.O_PATH)
        try:
            return os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)

    @contextmanager
    def lock(self, path: str, *, mode: int = 0o600, wait: bool = True) -> Iterator[None]:
        """Hold an exclusive flock on a file, made if missing; a directory in its place is set aside.

        Threads exclude each other. `BlockingIOError` if it is held: at once, or with `wait` after some seconds.
        """
        while True:
            try:
                fd = self._open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, mode)
            except IsADirectoryError:
                if not self.set_aside(path):
                    raise
                continue
            try:
                self._take(fd, path, wait=wait)
                # The one that held it may have removed the file: then this lock keeps no other out.
                if os.fstat(fd).st_nlink == 0:
                    continue
                yield
                return
            finally:
                # Closing is not enough: a program that another thread starts has the descriptor until it is executed.
                fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)

    def _take(self, fd: int, path: str, *, wait: bool) -> None:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        for pause in pauses(_LOCK_SECONDS if wait else 0):
            time.sleep(pause)
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
        seen = f"locked{_by_whom(fd)}" + f", and not given free within {_LOCK_SECONDS:g} s" * wait
        raise BlockingIOError(errno.EAGAIN, seen, path)

    @contextmanager
    def locks(self, path: str) -> Iterator["ByteLocks"]:
        """All locks that were taken end with the block."""
        fd = self._open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            yield ByteLocks(fd)
        finally:
            # Closing is not enough, as with `lock`.
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
            os.close(fd)


class ByteLocks:
    """Open file description locks (fcntl(2)) on bytes, which need not exist.

    Threads exclude each other, and locks end with their process. A file for each would cost ext4 ten times as much.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def take(self, offset: int, *, shared: bool = False) -> None:
        """Exclusive unless `shared`; `BlockingIOError` if another has it."""
        byte = _FLOCK.pack(fcntl.F_RDLCK if shared else fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, byte)


def pauses(seconds: float) -> Iterator[float]:
    """In seconds, short ones first, for so long."""
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _by_whom(fd: int) -> str:
    """From proc_locks(5); empty if that cannot be seen."""
    seen = os.fstat(fd)
    this = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    with suppress(OSError), open("/proc/locks") as locks:
        for line in locks:
            words = line.split()
            if words[1] == "FLOCK" and this in words:
                return f" by process {words[4]}"
    return ""


def _rename(directory: int, old: str, new: str, how: int) -> int:
    if _renameat2 is None:
        return errno.ENOSYS
    failed = _renameat2(directory, os.fsencode(old), directory, os.fsencode(new), how) != 0
    return ctypes.get_errno() if failed else 0


def _put(directory: int, fresh: str, name: str) -> None:
    """Give a temporary file the name, in place of any other.

    A rename over a file makes ext4 write the new content to the disk first (auto_da_alloc), which takes 1.2 ms; to
    exchange the two and remove the old one takes 0.2 ms.
    """
    if not _rename(directory, fresh, name, _RENAME_NOREPLACE):
        return
    if _rename(directory, fresh, name, _RENAME_EXCHANGE):
        os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    try:
        os.unlink(fresh, dir_fd=directory)
    except OSError:  # a directory, which rename(2) would have refused
        _rename(directory, fresh, name, _RENAME_EXCHANGE)
        raise


@contextmanager
def _temporary(parent: int, data: bytes, mode: int) -> Iterator[str]:
    name = f"{TEMPORARY}{os.urandom(8).hex()}"
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=parent)
    try:
        try:
            os.fchmod(fd, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)
        yield name
    except BaseException:
        os.unlink(name, dir_fd=parent)
        raise
