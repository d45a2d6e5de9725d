"""`tinglu transcribe`: a run over files, its results on stdout or in a file, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, TextIO

from app.formats.asr import asr_answer
from app.formats.format import json_text
from app.progress import ProgressBar
from app.recordings import Recording, recordings
from app.results import ResultsFile, results_alone
from app.transcriber import Outcome, Transcriber
from app.transcript import Transcript
from engine.device import DeviceGone

Form = Literal["text", "json"]

OK = 0
FAILED = 1
"""Exit code of a run in which something was not transcribed."""
UNUSABLE = 2
"""Exit code of a call that cannot work: wrong options, no weights. argparse uses it too."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. `output` is a file of JSON lines in place of stdout."""

    inputs: tuple[str, ...]
    form: Form = "text"
    output: Path | None = None
    language: str | None = None
    hotwords: tuple[str, ...] = ()
    itn: bool = True
    max_new_tokens: int | None = None
    words: bool = True


def transcribe(load: Callable[[], Transcriber], wanted: Wanted) -> int:
    """Write a line for every recording, one to stderr for every failure, and return the exit code.

    Args:
        load: called once, if there is anything to do.
    """
    with ExitStack() as stack:
        stdout = stack.enter_context(results_alone())
        file = None
        if wanted.output is not None:
            try:
                file = stack.enter_context(ResultsFile(wanted.output))
            except (OSError, ValueError) as error:
                return _end(f"{wanted.output}: {reason(error)}", UNUSABLE)
        run = _Run(wanted, stdout, file)
        try:
            run(load)
        except BrokenPipeError:  # whoever read stdout has seen enough
            return FAILED
        except OSError as error:
            return _end(f"{wanted.output or 'stdout'}: {reason(error)}", FAILED)
        except (DeviceGone, ValueError) as error:
            return _end(reason(error), FAILED)
        except KeyboardInterrupt:
            return _end(f"interrupted; {run.summary}" if file else "interrupted", INTERRUPTED)
        if file:
            return _end(run.summary, FAILED if run.failed else OK)
        return FAILED if run.failed else OK


def reason(error: BaseException) -> str:
    """An error in a line, without the path that the line begins with."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _end(message: str, code: int) -> int:
    print(f"tinglu: {message}", file=sys.stderr, flush=True)
    return code


class _Run:
    """The recordings of one call, from the first that is not done."""

    def __init__(self, wanted: Wanted, stdout: TextIO, file: ResultsFile | None) -> None:
        self._wanted = wanted
        self._stdout = stdout
        self._file = file
        self._done = frozenset() if file is None else file.done
        self._skipped = 0
        self._transcribed = 0
        self.failed = 0

    @property
    def summary(self) -> str:
        return f"{self._transcribed} transcribed, {self._skipped} done before, {self.failed} failed"

    def __call__(self, load: Callable[[], Transcriber]) -> None:
        """Raises what `load` raises, and what `Transcriber.transcribe_all` does; OSError where a result cannot go."""
        wanted = self._wanted
        to_do = self._to_do()
        first, second = next(to_do, None), next(to_do, None)
        if first is None:
            return
        named = second is not None or first.key != wanted.inputs[0]
        with ProgressBar() as bar, load() as transcriber:
            if bar.shown:
                known = [recording.key in self._done for recording in recordings(wanted.inputs)]
                bar.begin(total=len(known), done=sum(known))
            outcomes = transcriber.transcribe_all(
                chain([first], [second] if second else [], to_do),
                language=wanted.language,
                hotwords=wanted.hotwords,
                itn=wanted.itn,
                max_new_tokens=wanted.max_new_tokens,
                word_timestamps=wanted.words and (self._file is not None or wanted.form == "json"),
                in_order=self._file is None,
                progress=bar.heard if bar.shown else None,
            )
            with closing(outcomes):
                for outcome in outcomes:
                    self._take(outcome, bar, named=named)

    def _to_do(self) -> Iterator[Recording]:
        """What the results file does not have yet, each key once; on stdout, everything."""
        if self._file is None:
            yield from recordings(self._wanted.inputs)
            return
        taken: dict[str, str | None] = {}
        for recording in recordings(self._wanted.inputs):
            if recording.key in self._done:
                self._skipped += 1
            elif recording.key not in taken:
                taken[recording.key] = recording.path
                yield recording
            elif taken[recording.key] != recording.path:
                yield Recording(recording.key, ValueError(f"this key stands for {taken[recording.key]} already"))

    def _take(self, outcome: Outcome, bar: ProgressBar, *, named: bool) -> None:
        if outcome.transcript is None:
            assert outcome.error is not None
            self.failed += 1
            bar.say(f"tinglu: {outcome.key}: {reason(outcome.error)}")
        elif self._file is not None:
            self._file.write(self._json(outcome, outcome.transcript))
            self._transcribed += 1
        elif self._wanted.form == "json":
            bar.say(self._json(outcome, outcome.transcript), self._stdout)
        else:
            bar.say(f"{outcome.key}\t{outcome.transcript.text}" if named else outcome.transcript.text, self._stdout)
        bar.finished(outcome.key, outcome.transcript.duration if outcome.transcript else 0.0)

    def _json(self, outcome: Outcome, transcript: Transcript) -> str:
        answer = asr_answer(transcript, words=self._wanted.words)
        return json_text({"key": outcome.key, "file": outcome.path, **answer})
