"""The public door: a waveform in, spans of speech out."""

from __future__ import annotations

from collections.abc import Sequence

from audio.shared import Waveform
from audio.span import Span, to_samples
from vad import compat
from vad.graded import GradedSegments
from vad.network import FsmnNetwork
from vad.options import SegmentationOptions
from vad.scoring import PIECE_SECONDS, Scorer, start_scoring


class SegmentationJob:
    """The segmentation of one waveform in bounded pieces of work. All state is in here: jobs do not know each other."""

    def __init__(self, scorer: Scorer, options: SegmentationOptions) -> None:
        self.scorer = scorer
        self._options = options
        self._spans: list[Span] = []
        self._graded: GradedSegments | None = None
        if options.mode == "graded":
            threshold = compat.DYNAMIC_THRESHOLD if options.speech_threshold is None else options.speech_threshold
            limit = to_samples(options.max_segment_seconds)
            self._graded = GradedSegments(scorer.waveform, options.silences(), limit, threshold)

    @property
    def done(self) -> bool:
        return self.scorer.done

    @property
    def frames_ahead(self) -> int:
        """How many frames, of 10 ms, its next step looks at."""
        return self.scorer.frames_ahead

    @property
    def error(self) -> ValueError | None:
        """Why the waveform cannot be segmented, once known; the job is done then."""
        return self.scorer.error

    @property
    def spans(self) -> tuple[Span, ...]:
        """The segments found so far; those do not change any more. In mode "compat" they all come at the end.

        Raises:
            ValueError: the waveform holds NaN or infinite samples.
        """
        if self.error is not None:
            raise self.error
        return tuple(self._graded.spans if self._graded else self._spans)

    def step(self) -> None:
        """Score the next piece and look at it; nothing happens once `done`."""
        step_together([self])

    def follow(self) -> None:
        """Look at what has been scored."""
        scorer, options = self.scorer, self._options
        if scorer.error is not None:
            return
        if self._graded is not None:
            self._graded.follow(scorer.p_silence, scorer.level_db, scorer.scored)
        elif scorer.done:
            reference = compat.CompatOptions(
                silence_ms=options.fixed_silence_ms,
                schedule=options.silences(),
                max_segment_ms=round(options.max_segment_seconds * 1000),
                speech_threshold=options.speech_threshold,
            )
            found = compat.offline(scorer.p_silence, len(scorer.waveform), reference)
            self._spans = [Span(start / 1000, end / 1000) for start, end in found]


class Step:
    """One step of several jobs of one segmenter, scored in one batch that a GPU works on by itself.

    Memory and time grow with the number of jobs times the longest piece: a minute is 10 MB of features on the device.
    """

    def __init__(self, jobs: Sequence[SegmentationJob]) -> None:
        """Begin. Finished jobs rest; until `finish` is called the others belong to this step."""
        self._jobs = [job for job in jobs if not job.done]
        self._scoring = start_scoring([job.scorer for job in self._jobs])

    @property
    def reached(self) -> bool:
        """Whether `finish` has nothing to wait for."""
        return self._scoring.reached

    def finish(self) -> None:
        """Look at what has been scored."""
        self._scoring.take()
        for job in self._jobs:
            job.follow()


def step_together(jobs: Sequence[SegmentationJob]) -> None:
    """One step of several jobs, from its beginning to its end."""
    Step(jobs).finish()


class Segmenter:
    """Finds speech. Holds nothing but the network, so calls and threads may share it.

    The first call compiles the endpoint machine (seconds, once per machine): a server warms up with a second of zeros.
    """

    def __init__(self, network: FsmnNetwork, piece_seconds: float = PIECE_SECONDS) -> None:
        """
        Args:
            piece_seconds: how much of a waveform one step of a job looks at.
        """
        self._network = network
        self._piece_seconds = piece_seconds

    def start(self, waveform: Waveform, options: SegmentationOptions | None = None) -> SegmentationJob:
        """A job that segments a waveform piece by piece. It reads the samples as it goes: do not change them.

        Raises:
            ValueError: the waveform is not a 1-D float32 array.
        """
        scorer = Scorer(self._network, waveform, self._piece_seconds)
        return SegmentationJob(scorer, options or SegmentationOptions())

    def begin(self, jobs: Sequence[SegmentationJob]) -> Step:
        """Begin a step of several jobs."""
        return Step(jobs)

    def segments(self, waveform: Waveform, options: SegmentationOptions | None = None) -> list[Span]:
        """The segments of a waveform, in order, without overlap; none if it is silent, empty or shorter than 25 ms.

        Raises:
            ValueError: the waveform is not a 1-D float32 array, or holds NaN or infinite samples.
        """
        job = self.start(waveform, options)
        while not job.done:
            job.step()
        return list(job.spans)
