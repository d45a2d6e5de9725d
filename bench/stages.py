"""Fun-ASR-Nano stage by stage: seconds and GPU-busy share of each alone, and what one step of the language model takes.

Each stage does its work on all clips before the next begins, waited for at its end. Kernel seconds come from a second
pass under PyTorch's profiler; the busy share is those over the seconds of the first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import clips
from bench.offline import add_model, load, transcribe
from bench.report import print_header, print_table, spread

_ALIGNED_AT_ONCE = 32
_HOUR = 3600.0


def add_command(commands: Any) -> None:
    parser = commands.add_parser("stages", help=__doc__)
    add_model(parser)
    parser.add_argument("--clips", type=int, default=385)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a clip, up to 30 s")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 128], help="for the steps of the model")
    parser.add_argument("--vad-seconds", type=float, default=_HOUR, help="a recording for voice activity detection")
    parser.add_argument("--profile", type=Path, help="write the costliest operators of a step at batch 1 there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    count, seconds = arguments.clips, arguments.seconds
    print_header(
        "Fun-ASR-Nano, stage by stage",
        f"{count} different clips of {seconds:g} s of the recordings in tests/data; {arguments.model.name}",
        "each stage alone over all clips, waited for; model loaded and warm",
        f"engine arguments {arguments.engine_args or 'as served'}, answers of 130 tokens for 30 s",
    )
    recognizer, device = load(arguments)
    sound = clips.waveform(count, seconds)
    length = len(sound) // count
    work = Work(recognizer, [sound[begin : begin + length] for begin in range(0, len(sound), length)])
    work.all(Watch())
    watch, kernels = Watch(), Watch(kernels=True)
    work.all(watch)
    if device == "cuda":
        work.all(kernels)
    audio = count * seconds
    print_table(("stage", "calls", "seconds", "RTFx", "kernel seconds", "GPU busy"), list(_rows(watch, kernels, audio)))
    print()
    _overlapped(recognizer, sound, count, seconds)
    print()
    _steps(work, arguments.batches)
    if arguments.profile:
        _profile(work, arguments.profile)
    recognizer.close()
    print()
    _vad(device, arguments.vad_seconds)


@dataclass
class Watch:
    """Seconds of each stage until the device has nothing left to do, or the seconds of its kernels."""

    kernels: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        _settle()
        if self.kernels:
            from torch.profiler import ProfilerActivity, profile

            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                yield
                _settle()
            seconds = sum(event.self_device_time_total for event in profiler.key_averages()) / 1e6
        else:
            began = time.perf_counter()
            yield
            _settle()
            seconds = time.perf_counter() - began
        self.add(name, seconds)

    def add(self, name: str, seconds: float, calls: int = 1) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.calls[name] = self.calls.get(name, 0) + calls


class Work:
    """The parts of a recogniser, each to be called on all clips at once."""

    def __init__(self, recognizer: Any, sounds: list[Any]) -> None:
        from engine.recognition import DecodingOptions

        self._recognizer = recognizer
        self._sounds = sounds
        self._prompt = recognizer._rules.prompt(DecodingOptions())
        self.decoder = recognizer.decoder
        self.prompts: list[Any] = []

    def all(self, watch: Watch) -> None:
        batches = self._batches()
        with watch.stage("features"):
            features = [self._recognizer._listener._frontend(batch) for batch in batches]
        with watch.stage("encoder, adaptor, CTC decoder"):
            heard = [self._recognizer._listener._acoustic.hear(batch) for batch in features]
        del features
        with watch.stage("hand-over"):
            self.prompts = [prompt for batch in heard for prompt in self._handed_over(batch)]
        with watch.stage("language model: add"):
            self.add(len(self.prompts))
        with watch.stage("language model: steps"):
            answers, steps = self._decode()
        watch.calls["language model: steps"] += steps - 1
        with watch.stage("text"):
            self._write(answers)
        self._align([item.ctc for batch in heard for item in batch if item.ctc is not None], watch)

    def add(self, count: int) -> None:
        for number in range(count):
            prompt = self.prompts[number % len(self.prompts)]
            self.decoder.add(f"bench-{number}", prompt, max_new_tokens=512, temperature=0.0)

    def _batches(self) -> list[list[Any]]:
        """As the recogniser would form them if all clips came together."""
        limits, rows = self._recognizer._limits, self._recognizer._listener.rows(len(self._sounds[0]))
        size = max(1, min(limits.pieces, limits.rows // rows))
        return [self._sounds[begin : begin + size] for begin in range(0, len(self._sounds), size)]

    def _handed_over(self, heard: list[Any]) -> list[Any]:
        """As `Listener.start` and the recogniser do: one copy to the host, then the prompt around each."""
        import torch

        listener = self._recognizer._listener
        joined = torch.cat([item.embeddings for item in heard]).to(listener._dtype)
        with listener._stream.use():
            host = listener._stream.to_host(joined)
            listener._stream.mark().wait()
        parts = torch.split(host, [len(item.embeddings) for item in heard])
        return [self._recognizer._embedder(self._prompt, part) for part in parts]

    def _decode(self) -> tuple[list[Any], int]:
        answers: list[Any] = []
        steps = 0
        while len(answers) < len(self.prompts):
            answers += self.decoder.step()
            steps += 1
        return answers, steps

    def _write(self, answers: list[Any]) -> None:
        from engine.repetition import find_loop

        writer = self._recognizer._writer
        for answer in answers:
            find_loop(writer._rules.clean(writer._tokenizer.decode(answer.ids)))

    def _align(self, hidden: list[Any], watch: Watch) -> None:
        """The parts of `CtcAligner.words`, told apart from within; as served, processes do the last two."""
        from engine.fun_asr_nano import placing
        from engine.fun_asr_nano.alignment import AlignmentJob

        if self._recognizer._timer is None:
            return
        aligner = self._recognizer._timer._aligner
        groups = [hidden[begin : begin + _ALIGNED_AT_ONCE] for begin in range(0, len(hidden), _ALIGNED_AT_ONCE)]
        with (
            _watched(aligner._head, "label_logits", "CTC columns", watch),
            _watched(aligner._head, "label_log_probs", "CTC log-probabilities", watch),
            _watched(placing, "align", "Viterbi", watch),
            _watched(aligner.placer, "merge", "word merging", watch),
        ):
            for group in groups:
                aligner.words([AlignmentJob(rows, "") for rows in group])


@contextmanager
def _watched(owner: Any, name: str, stage: str, watch: Watch) -> Iterator[None]:
    plain: Callable[..., Any] = getattr(owner, name)

    def watched(*arguments: Any) -> Any:
        if watch.kernels and not stage.startswith("CTC"):
            return plain(*arguments)
        with watch.stage(stage):
            return plain(*arguments)

    setattr(owner, name, watched)
    try:
        yield
    finally:
        setattr(owner, name, plain)


def _rows(watch: Watch, kernels: Watch, audio: float) -> Iterator[tuple[str, ...]]:
    for name, seconds in watch.seconds.items():
        busy = kernels.seconds.get(name)
        gpu = ("-", "-") if busy is None else (f"{busy:.3f}", f"{100 * busy / seconds:.0f} %")
        yield name, str(watch.calls[name]), f"{seconds:.4f}", f"{audio / seconds:,.0f}", *gpu
    total = sum(watch.seconds.values())
    yield "all, one after the other", "", f"{total:.4f}", f"{audio / total:,.0f}", "", ""


def _overlapped(recognizer: Any, sound: Any, count: int, seconds: float) -> None:
    """The recogniser as it is, and what its thread does meanwhile."""
    spent = Watch()
    names = ("_collect_words", "_collect_heard", "_listen", "_decode", "_wait", "_align", "submit")
    plain = {name: getattr(recognizer, name) for name in names}
    for name, method in plain.items():
        setattr(recognizer, name, _timed(method, name.strip("_"), spent))
    began = time.perf_counter()
    transcribe(recognizer, sound, count, seconds, words=True)
    wall = time.perf_counter() - began
    for name, method in plain.items():
        setattr(recognizer, name, method)
    rows = [(name, str(spent.calls[name]), f"{value:.4f}") for name, value in spent.seconds.items()]
    rest = wall - sum(spent.seconds.values())
    rows += [("between them", "", f"{rest:.4f}"), (f"all: {count * seconds / wall:,.0f}x", "", f"{wall:.4f}")]
    print_table(("together, as served: the recogniser's thread", "calls", "seconds"), rows)


def _timed(method: Callable[..., Any], name: str, watch: Watch) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            watch.add(name, time.perf_counter() - began)

    return timed


def _steps(work: Work, batches: list[int]) -> None:
    rows = []
    for batch in batches:
        runs = [_step_seconds(work, batch) for _ in range(3)]
        rows.append((str(batch), spread([1e3 * run for run in runs], 2), spread([batch / run for run in runs], 0)))
    print_table(("batch", "ms a step (medians of 3 runs)", "tokens/s"), rows)


def _step_seconds(work: Work, batch: int) -> float:
    """The median step between the prompts' and the first answer's."""
    with _decoding(work, batch):
        seconds = []
        finished: list[Any] = []
        while not finished:
            began = time.perf_counter()
            finished = work.decoder.step()
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[:-1] or seconds)


def _profile(work: Work, path: Path) -> None:
    """One step at batch 1, ten times."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with _decoding(work, 1), profile(activities=activities) as profiler:
        for _ in range(10):
            work.decoder.step()
    orders = ["self_cpu_time_total"] + ["self_device_time_total"] * torch.cuda.is_available()
    averages = profiler.key_averages()
    tables = [averages.table(sort_by=order, row_limit=20, max_name_column_width=60) for order in orders]
    path.write_text("Ten steps of the language model at batch 1\n\n" + "\n\n".join(tables))
    print(f"\nprofile of a step: {path}")


@contextmanager
def _decoding(work: Work, batch: int) -> Iterator[None]:
    """So many prompts in the decoder, past their first steps; gone at the end."""
    work.add(batch)
    for _ in range(3):
        work.decoder.step()
    yield
    work.decoder.abort([f"bench-{number}" for number in range(batch)])
    while work.decoder.engine.has_unfinished_requests():
        work.decoder.step()


def _vad(device: str, seconds: float) -> None:
    from app.stages import SpeechRequest, load_vad
    from vad.options import SegmentationOptions

    stage = load_vad(device)
    count = max(1, round(seconds / 30))
    sound = clips.waveform(count, seconds / count)
    walls, spans = [], 0
    for run in range(4):
        began = time.perf_counter()
        stage.submit(run, sound, SpeechRequest(SegmentationOptions(max_segment_seconds=30.0)))
        while stage.busy:
            for output in stage.step():
                spans = len(output.value)
        walls.append(time.perf_counter() - began)
    row = (f"{seconds:g} s", spread(walls[1:], 3), spread([seconds / wall for wall in walls[1:]], 0), str(spans))
    print_table(("voice activity detection", "seconds (min / median / max)", "RTFx", "segments"), [row])


def _settle() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
