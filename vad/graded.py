"""Segments for offline recognition: the longer one runs, the shorter the pause that ends it.

Onsets and ends are those of the endpoint machine, with three differences. The allowed silence is looked up at every
frame of a pause, by the length of the segment so far. A segment that reaches the recogniser's limit is cut at the
quietest point of its last seconds, and the next one begins right there. A segment that is open at the end of the file
reaches to its last sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audio.fbank import HOP_SAMPLES
from audio.shared import Waveform
from audio.span import Span, to_seconds
from vad import endpoint
from vad.quietest import quietest_boundary
from vad.schedule import Schedule
from vad.tone import is_steady_tone

_SHORTEST_ONSET = 8
"""Speech frames without which even the shortest clip holds no speech: 80 ms."""
_SHORT_CLIP_SHARE = 0.4
"""Part of a clip below 0.4 s that is speech if the clip holds a word; less is a burst of noise."""
_LOOK_BACK_FRAMES = 1000
"""A cut lies in the last third of the segment, or in its last 10 s if that is less."""
_SHORT_PAUSE_FRAMES = 30
"""A pause that ends a segment without being trimmed began no longer ago."""


class GradedSegments:
    """Follows the scores of one file as they come.

    Attributes:
        spans: the segments found so far, in order, without overlap; complete after `follow` has seen the last frame.
    """

    def __init__(self, waveform: Waveform, schedule: Schedule, max_segment_samples: int, threshold: float) -> None:
        """
        Args:
            max_segment_samples: at least one second; no segment is longer, not by one sample.
            threshold: see `endpoint.is_speech`.
        """
        self.spans: list[Span] = []
        self._waveform = waveform
        self._pauses = endpoint.pause_table(schedule)
        self._limit = max_segment_samples // HOP_SAMPLES
        self._threshold = threshold
        self._frames = -(-len(waveform) // HOP_SAMPLES)
        # Speech need not fill the window in a clip that is hardly longer than it, only a good part of the clip.
        onset = min(endpoint.ONSET, max(_SHORTEST_ONSET, round(_SHORT_CLIP_SHARE * self._frames)))
        self._speech = np.zeros(self._frames, np.bool_)
        self._pointer = endpoint.Endpointer(self._speech, self._limit, onset)
        self._known = 0

    def follow(self, p_silence: NDArray[np.float32], level_db: NDArray[np.float32], scored: int) -> None:
        """Look at the frames up to `scored`.

        Args:
            p_silence: (frames,) of the whole file, valid up to `scored`.
            level_db: (ceil(samples / 160),) likewise, and valid to its end when all frames are scored.
        """
        if scored == 0:
            return
        pointer = self._pointer
        self._speech[self._known : scored] = endpoint.is_speech(p_silence[self._known : scored], self._threshold)
        self._known = scored
        if scored == len(p_silence):  # the last 15 to 25 ms have no frames of their own
            self._speech[scored:] = self._speech[scored - 1]
            self._known = self._frames
        while event := pointer.advance(self._known, self._pauses):
            if event == endpoint.PAUSED:
                self._end(self._pause_end(p_silence, level_db), level_db)
            elif event == endpoint.FULL and pointer.next < self._frames:
                self._cut(p_silence, level_db)
        if self._known == self._frames and pointer.open:
            self._end(self._frames, level_db)

    def _end(self, frame: int, level_db: NDArray[np.float32]) -> None:
        self._take(self._pointer.start, frame, level_db)
        self._pointer.close(frame, forget=False)

    def _pause_end(self, p_silence: NDArray[np.float32], level_db: NDArray[np.float32]) -> int:
        """Where to end a segment in its pause: LOOKAHEAD frames into a long one, at the quietest point of a short one.

        A short pause is over soon, or already: the window still says pause when the next word has begun.
        """
        pointer = self._pointer
        stop = pointer.next
        if pointer.pause > endpoint.LOOKAHEAD + 1:
            return max(pointer.start, stop - pointer.pause + endpoint.LOOKAHEAD + 1)
        first = max(pointer.start, stop - _SHORT_PAUSE_FRAMES)
        spoken = np.flatnonzero(self._speech[first:stop])
        if len(spoken) and not self._speech[stop - 1]:
            first += int(spoken[-1]) + 1
        return self._quietest(first, stop, p_silence, level_db)

    def _cut(self, p_silence: NDArray[np.float32], level_db: NDArray[np.float32]) -> None:
        """Cut a full segment; the next one is open at once."""
        stop = self._pointer.next
        boundary = self._quietest(stop - min(self._limit // 3, _LOOK_BACK_FRAMES), stop, p_silence, level_db)
        self._take(self._pointer.start, boundary, level_db)
        self._pointer.start = boundary

    def _quietest(self, first: int, stop: int, p_silence: NDArray[np.float32], level_db: NDArray[np.float32]) -> int:
        scores = p_silence[np.minimum(np.arange(first, stop), len(p_silence) - 1)]
        return first + quietest_boundary(level_db[first:stop], scores)

    def _take(self, start: int, stop: int, level_db: NDArray[np.float32]) -> None:
        """Keep frames [start, stop), unless a cut left nothing but a pause in them, or all of them are a tone."""
        if not self._speech[start:stop].any():
            return
        samples = slice(start * HOP_SAMPLES, min(stop * HOP_SAMPLES, len(self._waveform)))
        if not is_steady_tone(self._waveform[samples], level_db[start:stop]):
            self.spans.append(Span(to_seconds(samples.start), to_seconds(samples.stop)))
