"""Segments through the filter bank and the encoder, beside whatever else the device does."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from audio.shared import Waveform
from audio.streams import Mark, SideStream
from engine.fun_asr_nano.acoustic import AcousticModel, Heard
from engine.fun_asr_nano.frontend import Frontend


@dataclass(frozen=True, slots=True)
class _Started:
    """What was given to the device. `heard` may be read once `mark` is reached; its embeddings are on the CPU, its CTC
    rows stay on the device."""

    heard: Sequence[Heard]
    mark: Mark


class Listening:
    """A batch on its way through the encoder."""

    def __init__(self, started: Future[_Started]) -> None:
        self._started = started

    @property
    def reached(self) -> bool:
        """Whether `heard` can be had without waiting."""
        return self._started.done() and self._started.result().mark.reached

    def heard(self) -> Sequence[Heard]:
        """What was heard, in the order of the clips; waits for it. The embeddings are on the CPU."""
        started = self._started.result()
        started.mark.wait()
        return started.heard


class Listener:
    """Starts encoder batches; on a GPU nothing waits for them, not even for the samples to be gathered."""

    def __init__(self, frontend: Frontend, acoustic: AcousticModel, *, dtype: torch.dtype, device: str) -> None:
        """`dtype` is that of the language model's embeddings."""
        self._frontend = frontend
        self._acoustic = acoustic
        self._dtype = dtype
        self._stream = SideStream(device)
        # A batch of half a minute each is 60 MB to gather, 15 ms in which the language model need not stand still.
        self._thread = None if device == "cpu" else ThreadPoolExecutor(1, thread_name_prefix="listening")

    def rows(self, samples: int) -> int:
        """Encoder rows of a clip."""
        return self._frontend.rows(samples)

    @property
    def max_rows(self) -> int:
        return self._acoustic.max_rows

    def start(self, clips: Sequence[Waveform], *, ctc: bool) -> Listening:
        """Encode clips of 1 to `max_rows` rows each; `ctc` says whether word times will be wanted."""
        if self._thread is not None:
            return Listening(self._thread.submit(self._start, clips, ctc))
        done: Future[_Started] = Future()
        done.set_result(self._start(clips, ctc))
        return Listening(done)

    def close(self) -> None:
        """Wait for what was started."""
        if self._thread is not None:
            self._thread.shutdown()

    @torch.inference_mode()
    def _start(self, clips: Sequence[Waveform], ctc: bool) -> _Started:
        with self._stream.use():
            heard = self._acoustic.hear(self._frontend(clips), ctc=ctc)
            # One copy for the whole batch: vLLM takes embeddings from the CPU.
            embeddings = self._stream.to_host(torch.cat([item.embeddings for item in heard]).to(self._dtype))
            mark = self._stream.mark()
        parts = torch.split(embeddings, [len(item.embeddings) for item in heard])
        return _Started([Heard(part, item.ctc) for part, item in zip(parts, heard, strict=True)], mark)
