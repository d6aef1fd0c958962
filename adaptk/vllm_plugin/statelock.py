"""Who may write a file that several engines name: whoever holds the lock beside it."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from adaptk.statefile import MODE

# What systems say whose files know no locks.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def lock_of(path: Path) -> Path:
    """The lock's file of a file, whose name is followed where it is a link: both names have one lock.

    Examples
    --------
    >>> lock_of(Path("/run/no/state.json"))
    PosixPath('/run/no/state.json.lock')
    """
    target = Path(os.path.realpath(path))
    return target.with_name(f"{target.name}.lock")


class Lock:
    """A lock that the system gives back when the process ends, however it ends. Asked by one thread at a time.

    The file stays where it is: were it removed, two could hold what they take for the same lock.

    Parameters
    ----------
    path
        The lock's own file; its folder must exist by the time it is taken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.there = True  # whether files have locks there
        self._fd = -1

    def take(self) -> bool:
        """Have the lock from now on, or see that it is still had; false where another one holds it.

        Raises
        ------
        OSError
            If its file cannot be made.
        """
        if self._fd >= 0 and self._same():
            return True
        self.release()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._fd = os.open(self.path, flags, MODE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.there = True
        except BlockingIOError:
            self.release()
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                self.release()
                raise
            self.there = False
        if self._fd >= 0 and not self._same():  # removed by somebody before it was locked
            self.release()
        return self._fd >= 0

    def release(self) -> None:
        """Let another one have it; of a forked child: leave it to the parent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def _same(self) -> bool:
        """Whether its file is still the one that others find."""
        try:
            return os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return False


def held(path: Path) -> bool:
    """Whether somebody has the lock whose file is ``path`` at the moment; the file is not made."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # where files have no locks
        return False
    finally:
        os.close(fd)
    return False
