"""Speech to text inside a Python program: the pipeline without HTTP. `docs/library.md` shows how."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from app.errors import Refusal
from app.loop_thread import LoopThread
from app.options import split_hotwords, transcription_options
from app.pipeline import Pipeline, TranscriptionOptions
from app.recordings import Input, Recording, Sound, recordings
from app.settings import Settings
from app.transcript import Transcript
from engine.device import DeviceGone
from engine.recognition import Capabilities

logger = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
"""Called with a recording's key and the seconds of it that are done, on the transcriber's own thread."""

_AHEAD = 4
"""Results that wait for an earlier one, as a multiple of the recordings under way at once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a recording: its transcript, or the error in its way. `path` is None for an array."""

    key: str
    path: str | None = None
    transcript: Transcript | None = None
    error: Exception | None = None


class Transcriber:
    """Recordings to transcripts, with the models in a thread of this process.

    Its methods wait for their results and may be called from any thread, several at once, and inside a running event
    loop, such as a notebook's: it has its own. Close it, or use it as a context manager, to free the models.
    """

    def __init__(self, pipeline: Pipeline, *, parallel: int = 8) -> None:
        """Wait until the pipeline is ready; it belongs to the transcriber from now on.

        Args:
            parallel: recordings of a run under way at once, each decoded in memory (230 MB an hour).

        Raises:
            DeviceGone: the models do not load; the message says why.
        """
        self._pipeline = pipeline
        self._parallel = parallel
        self._loop = LoopThread("tinglu-transcriber", at_end=pipeline.close)
        try:
            self._loop.submit(pipeline.ready()).result()
        except Exception:
            self.close()
            raise
        except BaseException:  # whoever interrupts the loading does not wait for its end
            self._loop.end()
            raise

    @classmethod
    def load(cls, settings: Settings | None = None, *, parallel: int | None = None) -> Self:
        """A transcriber with the models of the settings; `Settings()` are those of the environment.

        Args:
            parallel: as in the constructor; by default enough to keep the device busy.

        Raises:
            ModelNotFound: the weights cannot be had; one line that says what to do.
            ValueError: settings that do not go together.
            DeviceGone: the models do not load; the message says why.
        """
        from app.runtime import build_pipeline, device_kind

        settings = settings or Settings()
        fitting = 64 if device_kind(settings) == "cuda" else 2 * settings.decode_workers
        return cls(build_pipeline(settings, in_process=True), parallel=parallel or fitting)

    @property
    def capabilities(self) -> Capabilities:
        """What the loaded recogniser can do: its name, its languages, whether it gives word times."""
        return self._pipeline.capabilities

    def transcribe(
        self,
        sound: Sound,
        *,
        language: str | None = None,
        hotwords: str | Iterable[str] = (),
        itn: bool = True,
        max_new_tokens: int | None = None,
        word_timestamps: bool = True,
    ) -> Transcript:
        """The transcript of one recording, given as a path or an array of mono float samples at 16 kHz in [-1, 1].

        Args:
            language: a code or a name in English, Chinese or its own; None lets the model find out.
            hotwords: words to expect, in a sequence or separated by commas.
            itn: whether numbers and dates are written in digits, where the model leaves the choice.
            max_new_tokens: most tokens that a segment may become.
            word_timestamps: whether words get times; without them a run is a little faster.

        Raises:
            AudioError: the recording cannot be used.
            OSError: the file cannot be read.
            ValueError: an option that the recogniser cannot honour, an array that is no waveform.
            DeviceGone: the device died.
        """
        options = self._options(language, hotwords, itn, max_new_tokens, word_timestamps)
        outcome = self._finished(self._start(Recording("", sound), options, None))
        if outcome.transcript is None:
            assert outcome.error is not None
            raise outcome.error
        return outcome.transcript

    def transcribe_all(
        self,
        inputs: Input | Iterable[Input],
        *,
        language: str | None = None,
        hotwords: str | Iterable[str] = (),
        itn: bool = True,
        max_new_tokens: int | None = None,
        word_timestamps: bool = True,
        in_order: bool = True,
        progress: Progress | None = None,
    ) -> Generator[Outcome, None, None]:
        """What becomes of each recording, one after another. A recording that fails does not end the run.

        Inputs are what `app.recordings.recordings` takes: paths, folders, `wav.scp`, `.jsonl`, arrays, one or any
        iterable of them. They are taken as the run gets to them, a few ahead, from the thread that iterates; the run
        waits while nobody asks for the next outcome, so that it holds no more than a few recordings and transcripts
        however many there are. Closing the iterator cancels what is under way.

        Args:
            in_order: whether outcomes come in the order of the inputs, or as they get ready.
            progress: told of every segment, before its recording is done.

        The other arguments are those of `transcribe`.

        Raises:
            ValueError: an option that the recogniser cannot honour; at once.
            DeviceGone: while iterating: the device died, and nothing more would succeed.
            TypeError: while iterating: an input that is none.
        """
        options = self._options(language, hotwords, itn, max_new_tokens, word_timestamps)
        return self._outcomes(recordings(inputs), options, in_order, progress)

    def close(self) -> None:
        """Cancel what is under way and free the models; calling it twice is harmless."""
        self._loop.end().result()
        self._loop.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _outcomes(
        self, items: Iterator[Recording], options: TranscriptionOptions, in_order: bool, progress: Progress | None
    ) -> Generator[Outcome, None, None]:
        window = _Window(self._parallel, in_order=in_order)
        try:
            for recording in items:
                window.add(self._start(recording, options, progress))
                while True:
                    if window.ready:
                        yield self._finished(window.take())
                    if not window.full:
                        break
                    window.wait()
            while not window.empty:
                if window.ready:
                    yield self._finished(window.take())
                else:
                    window.wait()
        finally:
            window.cancel()

    def _start(self, recording: Recording, options: TranscriptionOptions, progress: Progress | None) -> Future[Outcome]:
        return self._loop.submit(_outcome(self._pipeline, recording, options, progress))

    @staticmethod
    def _finished(future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the transcriber was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def _options(
        self,
        language: str | None,
        hotwords: str | Iterable[str],
        itn: bool,
        max_new_tokens: int | None,
        word_timestamps: bool,
    ) -> TranscriptionOptions:
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ValueError("`max_new_tokens` must be at least 1")
        words = split_hotwords([hotwords] if isinstance(hotwords, str) else hotwords)
        try:
            options = transcription_options(
                self.capabilities, language=language, hotwords=words, word_timestamps=word_timestamps
            )
        except Refusal as refusal:
            raise ValueError(refusal.message) from None
        return replace(options, decoding=replace(options.decoding, itn=itn, max_new_tokens=max_new_tokens))


async def _outcome(
    pipeline: Pipeline, recording: Recording, options: TranscriptionOptions, progress: Progress | None
) -> Outcome:
    """Errors are stripped of their frames, which hold the sound."""
    try:
        source = await asyncio.to_thread(recording.source)
        async with aclosing(pipeline.stream(source, options)) as items:
            async for item in items:
                if isinstance(item, Transcript):
                    return Outcome(recording.key, recording.path, item)
                if progress is not None:
                    progress(recording.key, item.end)
        raise AssertionError("a stream ends with its transcript")
    except DeviceGone:
        raise
    except (OSError, ValueError) as error:
        return Outcome(recording.key, recording.path, error=error.with_traceback(None))
    except Exception as error:
        logger.exception("%s failed", recording.key)
        return Outcome(recording.key, recording.path, error=error.with_traceback(None))


class _Window:
    """The recordings of a run that are under way, or done and not yet handed out."""

    def __init__(self, parallel: int, *, in_order: bool) -> None:
        self._parallel = parallel
        self._in_order = in_order
        self._held: deque[Future[Outcome]] = deque()

    @property
    def empty(self) -> bool:
        return not self._held

    @property
    def ready(self) -> bool:
        """Whether there is one to hand out."""
        candidates = list(self._held)[: 1 if self._in_order else None]
        return any(future.done() for future in candidates)

    @property
    def full(self) -> bool:
        return len(self._running) >= self._parallel or len(self._held) >= _AHEAD * self._parallel

    def add(self, future: Future[Outcome]) -> None:
        self._held.append(future)

    def take(self) -> Future[Outcome]:
        """The one to hand out; only while `ready`."""
        future = next(future for future in self._held if future.done())
        self._held.remove(future)
        return future

    def wait(self) -> None:
        """Wait until one more is done, if any is under way."""
        wait(self._running, return_when=FIRST_COMPLETED)

    def cancel(self) -> None:
        for future in self._held:
            future.cancel()

    @property
    def _running(self) -> list[Future[Outcome]]:
        return [future for future in self._held if not future.done()]
