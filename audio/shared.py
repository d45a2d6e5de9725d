"""Waveforms that several processes read without copying.

The samples live in an anonymous memory file (memfd). Other processes of the same user open it through
`/proc/<owner>/fd/<n>`; the kernel frees it when the last user is gone, so a killed process leaks nothing and the size
of `/dev/shm`, 64 MB in a default container, does not matter.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from audio.span import to_seconds

Waveform = NDArray[np.float32]
"""Mono float32 samples at 16 kHz, 1-D, in [-1, 1]."""

_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True)
class SharedWaveformRef:
    """Where another process finds a waveform: small and picklable.

    The inode tells whether the path still leads there: the owner may have closed it and reused the number.
    """

    path: str
    inode: int
    samples: int

    def open(self) -> Waveform:
        """Map the waveform read-only into this process; the mapping outlives the owner.

        Raises:
            FileNotFoundError: the owner has closed it, or is gone.
        """
        if self.samples == 0:
            return np.empty(0, np.float32)
        descriptor = self._descriptor(os.O_RDONLY)
        try:
            view = mmap.mmap(descriptor, self.samples * _ITEM_BYTES, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        return np.frombuffer(view, np.float32, self.samples)

    def writer(self) -> BinaryIO:
        """Open the empty memory file for its samples; `wanted` tells a writer whether to go on.

        Raises:
            FileNotFoundError: the owner has closed it, or is gone.
        """
        return open(self._descriptor(os.O_RDWR), "r+b")

    def wanted(self) -> bool:
        """Whether the owner still holds the waveform."""
        try:
            return os.stat(self.path).st_ino == self.inode
        except FileNotFoundError:
            return False

    def _descriptor(self, flags: int) -> int:
        try:  # the number may belong to a pipe by now, which would wait for its other end
            descriptor = os.open(self.path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:  # or to a socket, which cannot be opened
            raise FileNotFoundError(f"{self.path} is no waveform any more") from error
        if os.fstat(descriptor).st_ino != self.inode:
            os.close(descriptor)
            raise FileNotFoundError(f"{self.path} is another file by now")
        return descriptor


class SharedWaveform:
    """The owner's end: an anonymous memory file that a writer fills and readers map."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("tinglu-waveform", os.MFD_CLOEXEC)

    @classmethod
    def of(cls, waveform: Waveform) -> SharedWaveform:
        """A shared copy of samples that already lie in this process."""
        shared = cls()
        shared.write(waveform)
        return shared

    def write(self, waveform: Waveform) -> None:
        """Copy samples into the empty memory file."""
        with open(self._fd, "wb", closefd=False) as file:
            file.write(np.ascontiguousarray(waveform, np.float32).data)

    @property
    def samples(self) -> int:
        """Samples written so far; the owner must not have closed it."""
        return os.fstat(self._fd).st_size // _ITEM_BYTES

    @property
    def duration(self) -> float:
        """Seconds of sound written so far."""
        return to_seconds(self.samples)

    def ref(self) -> SharedWaveformRef:
        """What another process needs to find the samples written so far."""
        return SharedWaveformRef(f"/proc/{os.getpid()}/fd/{self._fd}", os.fstat(self._fd).st_ino, self.samples)

    def close(self) -> None:
        """Give the memory back once no other process maps it; calling it twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> SharedWaveform:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
