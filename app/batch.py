"""`tinglu transcribe`: many files through one pipeline, one result a line in the order of the files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import Literal

from tqdm import tqdm

from app.errors import Refusal
from app.formats.asr import asr_answer
from app.formats.format import json_text
from app.options import transcription_options
from app.pipeline import EncodedAudio, Pipeline, TranscriptionOptions
from app.transcript import Transcript
from engine.device import DeviceGone

Form = Literal["text", "json"]


class Batch:
    """A run over files. The pipeline is closed at its end."""

    def __init__(
        self, pipeline: Pipeline, *, parallel: int, language: str | None = None, hotwords: tuple[str, ...] = ()
    ) -> None:
        """`parallel` is how many files are under way at once."""
        self._pipeline = pipeline
        self._free = asyncio.Semaphore(parallel)
        self._language = language
        self._hotwords = hotwords

    async def run(self, files: Sequence[str], form: Form) -> int:
        """Write results to stdout, one line a failure to stderr, and return how many files failed.

        A line is the text (after the file's name and a tab, if there are several files), or a JSON object. On a
        terminal, stderr shows a progress bar.
        """
        bar = tqdm(total=len(files), unit="file", file=sys.stderr, disable=None)
        failures = 0
        try:
            await self._pipeline.ready()
            options = transcription_options(
                self._pipeline.capabilities, language=self._language, hotwords=self._hotwords
            )
            async with asyncio.TaskGroup() as group:
                results = [group.create_task(self._one(file, options, bar)) for file in files]
                for file, result in zip(files, results, strict=True):
                    outcome = await result
                    if isinstance(outcome, Transcript):
                        tqdm.write(_line(file, outcome, form, named=len(files) > 1), file=sys.stdout)
                    else:
                        failures += 1
                        tqdm.write(f"tinglu: {file}: {outcome}", file=sys.stderr)
        except (DeviceGone, Refusal) as error:
            tqdm.write(f"tinglu: {error}", file=sys.stderr)
            failures = len(files)
        finally:
            bar.close()
            await self._pipeline.close()
        return failures

    async def _one(self, file: str, options: TranscriptionOptions, bar: tqdm[None]) -> Transcript | str:
        """The transcript of a file, or why there is none."""
        async with self._free:
            try:
                (await asyncio.to_thread(open, file, "rb")).close()  # its own words for a file that is not there
                async with aclosing(self._pipeline.stream(EncodedAudio(file), options)) as items:
                    async for item in items:
                        if isinstance(item, Transcript):
                            return item
                        bar.set_postfix_str(f"{file} {item.end:.0f} s")
                raise AssertionError("a stream ends with its transcript")
            except OSError as error:
                return error.strerror or str(error)
            except (ValueError, DeviceGone) as error:
                return str(error)
            finally:
                bar.update()


def _line(file: str, transcript: Transcript, form: Form, *, named: bool) -> str:
    if form == "json":
        return json_text({"file": file, **asr_answer(transcript, words=True)})
    return f"{file}\t{transcript.text}" if named else transcript.text
