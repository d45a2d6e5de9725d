"""The endpoint state machine of FSMN-VAD: frame decisions in, starts and ends of speech out.

Reference: FsmnVADStreaming of FunASR, in its multi-utterance mode with default windows. Frames are 10 ms. Speech begins
when 15 of the last 20 frames are speech. It pauses when 15 or fewer are, and ends when that pause has lasted long
enough. The machine runs up to its next event and leaves it to the caller where exactly a segment ends, so the
reference's rules (`vad.compat`) and ours (`vad.graded`) share it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vad.compiled import compiled
from vad.schedule import Schedule

FRAME_MS = 10
WINDOW = 20
"""Frames over which speech is counted."""
ONSET = 15
"""Speech frames in the window at which speech begins, and at or below which it pauses."""
LOOKBACK = WINDOW + 20
"""Frames before the onset decision at which a segment begins: the window, and 200 ms of grace."""
LOOKAHEAD = 10
"""Frames of a pause that stay with the segment before it."""
CONFIRM_MS = 150
"""Part of an allowed silence that the window itself takes."""

EXHAUSTED, STARTED, PAUSED, FULL = range(4)
"""Events: no frames left; a segment has begun; its pause has lasted as long as allowed; it has reached its limit."""

# Fields of the state array.
_NEXT, _COUNT, _WINDOW_START, _TALKING, _OPEN, _START, _FLOOR, _PAUSE = range(8)
_NO_LIMIT = 1 << 60


def is_speech(p_silence: NDArray[np.float32], threshold: float) -> NDArray[np.bool_]:
    """Frame decisions: speech where P(speech) exceeds P(silence) by at least a threshold in (-1, 1)."""
    return p_silence <= np.float32((1 - threshold) / 2)


class Endpointer:
    """Follows the frame decisions of one file.

    After an event, `next` is the frame behind the one that decided. A segment that PAUSED or is FULL stays open until
    the caller closes it, or moves its `start`.
    """

    def __init__(self, speech: NDArray[np.bool_], limit: int, onset: int = ONSET) -> None:
        """
        Args:
            speech: (frames,) decisions; those not passed to `advance` yet may still change.
            limit: frames at which a segment is FULL.
            onset: see ONSET.
        """
        self.speech = speech
        self._limit = limit
        self._onset = onset
        self._state = np.zeros(8, np.int64)

    def advance(self, stop: int, pauses: NDArray[np.int64]) -> int:
        """Look at the frames before `stop` until something happens; returns the event.

        Args:
            pauses: from `pause_table`; may differ from call to call.
        """
        return _advance(self.speech, stop, self._onset, self._limit, pauses, self._state)

    @property
    def next(self) -> int:
        """Frame to look at next."""
        return int(self._state[_NEXT])

    @property
    def open(self) -> bool:
        """Whether a segment has begun and is not closed yet."""
        return bool(self._state[_OPEN])

    @property
    def start(self) -> int:
        """First frame of the open segment."""
        return int(self._state[_START])

    @start.setter
    def start(self, frame: int) -> None:
        self._state[_START] = frame

    @property
    def pause(self) -> int:
        """Frames since the window last said speech."""
        return int(self._state[_PAUSE])

    def close(self, end: int, *, forget: bool) -> None:
        """End the open segment before frame `end`. The next one begins there or later.

        Args:
            forget: count only speech still to come towards the next onset, not what lies between `end` and `next`.
        """
        window_start = self.next if forget else max(end, self.next - WINDOW)
        self._state[_FLOOR] = end
        self._state[_WINDOW_START] = window_start
        self._state[_COUNT] = np.count_nonzero(self.speech[window_start : self.next])
        for field in (_TALKING, _OPEN, _PAUSE):
            self._state[field] = 0


def pause_table(schedule: Schedule) -> NDArray[np.int64]:
    """Rows (length of the segment in frames, inclusive; pause in frames that ends it) for `Endpointer.advance`."""
    rows = []
    for limit, silence in schedule.rows:
        pause = -(-max(0, silence - CONFIRM_MS) // FRAME_MS)
        rows.append((_NO_LIMIT if limit is None else limit // FRAME_MS, pause))
    return np.array(rows, np.int64)


@compiled
def _advance(
    speech: NDArray[np.bool_], stop: int, onset: int, limit: int, pauses: NDArray[np.int64], state: NDArray[np.int64]
) -> int:
    while state[_NEXT] < stop:
        frame = state[_NEXT]
        state[_NEXT] = frame + 1
        state[_COUNT] += speech[frame]
        if frame - WINDOW >= state[_WINDOW_START]:
            state[_COUNT] -= speech[frame - WINDOW]
        was_talking = state[_TALKING]
        if was_talking and state[_COUNT] <= onset:
            state[_TALKING] = 0
        elif not was_talking and state[_COUNT] >= onset:
            state[_TALKING] = 1
        paused = not was_talking and not state[_TALKING]
        state[_PAUSE] = state[_PAUSE] + 1 if paused else 0
        if state[_OPEN]:
            length = frame + 1 - state[_START]
            if paused:
                row = 0
                while length > pauses[row, 0]:
                    row += 1
                if state[_PAUSE] >= pauses[row, 1]:
                    return PAUSED
            if length >= limit:
                return FULL
        elif state[_TALKING] and not was_talking:
            state[_OPEN] = 1
            state[_START] = max(state[_FLOOR], frame - LOOKBACK)
            state[_FLOOR] = frame + 1
            return STARTED
        elif paused and frame >= LOOKBACK:
            state[_FLOOR] = max(state[_FLOOR], frame - LOOKBACK)
    return EXHAUSTED
