"""How the C library's heap treats blocks of megabytes."""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = 1 << 18
"""Below what Whisper hears at a time, 0.9 MiB of features, and above what comes and goes with every token."""


def return_large_blocks() -> None:
    """Let glibc's malloc map blocks of 256 KiB and more by themselves, and give them back when they are freed.

    Of its own it raises that limit to 32 MiB as soon as such a block is freed. From then on tensors whose sizes differ
    from batch to batch lie in the heap, between others that stay, and their holes add up: 200 clips of Whisper left
    320 MiB of them.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
