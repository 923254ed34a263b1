"""The only module in `cni/` that opens files: everything below a root descriptor, and nothing outside it.

Paths of plugin configuration come from the caller's mount namespace, which is not the daemon's. They are opened
relative to a descriptor of the caller's `/` by openat2(2), with RESOLVE_IN_ROOT (absolute symbolic links and `..`
stay inside) and RESOLVE_NO_MAGICLINKS (a link in /proc cannot lead out). Implements `weft.cni.host.Files`.

It knows nothing of what the files mean. A root is a descriptor that somebody else owns and closes.
"""

import ctypes
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Final

# asm-generic/unistd.h: the same number on every architecture. linux/openat2.h: struct open_how and its flags.
_SYS_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_IN_ROOT: Final = 0x10
# A name on the way was renamed while `..` was resolved: the kernel asks to try again.
_ATTEMPTS: Final = 32
_EAGAIN: Final = 11
# No configuration and no state of a plugin is near this size; it bounds what a wrong path can cost.
_MAX_READ: Final = 16 << 20
_MAX_SETTING: Final = 4096
_NET_SETTINGS: Final = "/proc/sys/net"

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_renameat2 = getattr(_libc, "renameat2", None)
_RENAME_EXCHANGE: Final = 2
_FLOCK: Final = Struct("@hhqqi")  # struct flock: type, whence, start, length, pid (0 for this kind of lock)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(root: int, path: str, flags: int, mode: int = 0) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, mode, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    # As C strings the kernel would stop at NUL and open something else.
    if "\0" in path:
        raise ValueError("a path with a NUL byte")
    for _ in range(_ATTEMPTS):
        fd = _syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_long(root),
            os.fsencode(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return int(fd)
        if ctypes.get_errno() != _EAGAIN:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def fs_magic(path: str) -> int:
    """Return the number of the file system that `path` is on (statfs(2), f_type)."""
    if "\0" in path:
        raise ValueError("a path with a NUL byte")
    # struct statfs is 120 bytes on 64-bit machines and starts with f_type, a long.
    found = (ctypes.c_long * 64)()
    if _libc.statfs(os.fsencode(path), found) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return found[0]


def open_root(path: str) -> int:
    """Return a descriptor of a directory, to be a root. The caller closes it."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


class RootedFiles:
    """Files below the directory that `root` describes."""

    def __init__(self, root: int) -> None:
        self._root = root

    @contextmanager
    def _opened(self, path: str, flags: int, mode: int = 0) -> Iterator[int]:
        fd = _openat2(self._root, path, flags, mode)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The directory of `path`, and its last part, on which links are not followed any more."""
        directory, _, name = path.rstrip("/").rpartition("/")
        if name in {"", ".", ".."}:
            raise IsADirectoryError(21, os.strerror(21), path)
        with self._opened(directory or "/", os.O_PATH | os.O_DIRECTORY) as parent:
            try:
                yield parent, name
            except OSError as error:
                # What was done had a part of the path, or a temporary name; people know the whole.
                error.filename, error.filename2 = path, None
                raise

    def read(self, path: str) -> bytes:
        """Return the whole content of a regular file."""
        # O_NONBLOCK: a FIFO in the place of a file must not hang the reader; for files it means nothing.
        with self._opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(22, "not a regular file", path)
            parts: list[bytes] = []
            left = _MAX_READ
            while chunk := os.read(fd, min(left + 1, 65536)):
                parts.append(chunk)
                left -= len(chunk)
                if left < 0:
                    raise OSError(27, f"larger than {_MAX_READ} bytes", path)
            return b"".join(parts)

    def write_new(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Make a file that is whole from its first moment; `FileExistsError` if the name is taken."""
        with self._parent(path) as (parent, name), _temporary(parent, data, mode) as temporary:
            os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            os.unlink(temporary, dir_fd=parent)

    def replace(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Put `data` in place of whatever is there, by rename: a reader sees the old content or the new."""
        with self._parent(path) as (parent, name), _temporary(parent, data, mode) as temporary:
            if not _exchange(parent, temporary, name):
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                return
            try:
                os.unlink(temporary, dir_fd=parent)
            except OSError:  # a directory, which rename(2) would have refused
                _exchange(parent, temporary, name)
                raise

    def unlink(self, path: str) -> None:
        """Remove a name. A symbolic link is removed itself."""
        with self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, in no order."""
        with self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            return os.listdir(fd)

    def makedirs(self, path: str, *, mode: int = 0o755) -> None:
        """Make a directory and its parents, all with `mode`; those that exist stay as they are."""
        try:
            with self._opened(path, os.O_PATH | os.O_DIRECTORY):
                return
        except FileNotFoundError:
            directory, _, _ = path.rstrip("/").rpartition("/")
        if directory:
            self.makedirs(directory, mode=mode)
        with self._parent(path) as (parent, name):
            try:
                os.mkdir(name, mode, dir_fd=parent)
            except FileExistsError:
                return  # somebody else has made it just now
            # The umask belongs to the whole process and cannot be changed for one thread.
            os.chmod(name, mode, dir_fd=parent)

    def stamp(self, path: str) -> tuple[int, int, int]:
        """Return device, inode and modification time (ns) of a directory."""
        with self._opened(path, os.O_PATH | os.O_DIRECTORY) as fd:
            seen = os.fstat(fd)
        return seen.st_dev, seen.st_ino, seen.st_mtime_ns

    @contextmanager
    def lock(self, path: str, *, mode: int = 0o600, wait: bool = True) -> Iterator[None]:
        """Hold an exclusive flock on a file, made if missing. Threads exclude each other.

        Waits without limit, or with `wait` false raises `BlockingIOError` if somebody else holds it.
        """
        while True:
            with self._opened(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, mode) as fd:
                fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever held it may have removed the file: then this lock keeps nobody out.
                if os.fstat(fd).st_nlink == 0:
                    continue
                yield
                return

    @contextmanager
    def lock_byte(self, path: str, offset: int, *, wait: bool = True) -> Iterator[None]:
        """Hold an exclusive lock on one byte of a file, made if missing; the byte need not exist.

        An open file description lock (fcntl(2)): threads exclude each other, and it ends with its process. A file
        for each lock would cost an ext4 file system ten times as much to make and remove.
        """
        with self._opened(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600) as fd:
            byte = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, byte)
            yield


class Settings:
    """The settings of one network namespace, through descriptors of the first-level directories of /proc/sys/net.

    A descriptor of /proc/sys/net itself would not do: below it names resolve in the namespace of the thread that
    uses it. Names start with `net/` (`net/ipv4/ip_forward`). Implements `weft.cni.host.Sysctls`.
    """

    def __init__(self, directories: Mapping[str, int]) -> None:
        self._directories = directories

    def read(self, name: str) -> str:
        """Return the value without its newline. `OSError` if it is missing or refused."""
        fd = self._open(name, os.O_RDONLY)
        try:
            return os.read(fd, _MAX_SETTING).decode().removesuffix("\n")
        finally:
            os.close(fd)

    def write(self, name: str, value: str) -> None:
        """Set the value. `OSError` if it is missing or refused."""
        fd = self._open(name, os.O_WRONLY)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)

    def _open(self, name: str, flags: int) -> int:
        net, _, rest = name.partition("/")
        directory, _, path = rest.partition("/")
        if net != "net" or directory not in self._directories:
            raise FileNotFoundError(2, os.strerror(2), name)
        return _openat2(self._directories[directory], path, flags)


def open_settings(names: Iterable[str] | None = None) -> dict[str, int]:
    """Open first-level directories of /proc/sys/net in the calling thread's namespace, all or those of `names`.

    One that this kernel lacks is left out. The caller closes them.
    """
    opened: dict[str, int] = {}
    for name in os.listdir(_NET_SETTINGS) if names is None else names:
        with suppress(FileNotFoundError, NotADirectoryError):
            opened[name] = open_root(f"{_NET_SETTINGS}/{name}")
    return opened


def _exchange(directory: int, one: str, other: str) -> bool:
    """Let two names change places; False if they cannot, mostly because there is only one.

    To rename over a file makes ext4 write the new content to the disk first (mount option auto_da_alloc), 1.2 ms
    for the sake of a crash that none of these files outlives; to exchange the two and remove the old one 0.2 ms.
    """
    names = (os.fsencode(one), os.fsencode(other))
    return _renameat2 is not None and _renameat2(directory, names[0], directory, names[1], _RENAME_EXCHANGE) == 0


@contextmanager
def _temporary(parent: int, data: bytes, mode: int) -> Iterator[str]:
    """A file with this content and a name of ours, gone at the end unless it got another name or was removed."""
    name = f".weft-{os.urandom(8).hex()}"
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
