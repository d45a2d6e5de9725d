"""Who spoke: error rates of our diarization, the published clustering and SpectralCluster on the same embeddings.

Needs utterances of many voices (`--voices`), which the bench makes in an environment of their own:

    python3 -m venv .cache/voices-venv
    .cache/voices-venv/bin/pip install -r requirements/bench-voices.txt
    apt-get install ffmpeg espeak-ng asterisk-core-sounds-{en,fr,it,ru}-g722
    npm pack kokoro-js@1.2.1 && tar xzf kokoro-js-1.2.1.tgz -C .cache
    .cache/voices-venv/bin/python bench/voice_builder.py .cache/voices .cache/package/voices
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from audio.span import Span
from bench.conversations import CONDITIONS, HELD_OUT, TUNING, Conversation, Turn, conversation, read_voices
from bench.der import DiarizationErrors, best_mapping, errors
from bench.published_clustering import published_labels, published_sentence_speaker, published_turns
from bench.report import print_header, print_table
from bench.rival_clustering import agglomerative_labels, nme_sc_labels
from bench.speaker_cost import add_cost_options, run_cost
from diarization.assignment import assign
from diarization.clustering import in_order
from diarization.diarizer import DiarizationJob, Diarizer
from diarization.embedding import load_embedder
from diarization.options import DiarizationOptions
from diarization.timeline import SpeakerTurn
from vad.network import FsmnNetwork
from vad.segmenter import Segmenter

MOST_VOICES = 6
SECONDS_EACH = (8.0, 25.0, 60.0)
"""Seconds of conversation for each of its voices: short, middling, long."""
WORD_SECONDS = 0.3
AVERAGE_LINKAGE_CUT = 0.68
"""Cosine at which plain agglomeration has the fewest wrong words on the tuning set with GE2E."""
_SETS = {"tuning": (TUNING, 0), "held-out": (HELD_OUT, 1000)}


@dataclass(slots=True)
class Score:
    """What one system got wrong in all conversations of a set."""

    collared: DiarizationErrors = field(default_factory=DiarizationErrors)
    strict: DiarizationErrors = field(default_factory=DiarizationErrors)
    count_errors: list[int] = field(default_factory=list)
    words: int = 0
    wrong_words: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system says: turns, how many speakers, and for each word of the truth whose it is."""

    turns: Sequence[tuple[float, float, int]]
    speakers: int
    words: Sequence[int]


def add_command(commands: Any) -> None:
    parser = commands.add_parser("diarization", help=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voices", type=Path, default=Path(".cache/voices"))
    parser.add_argument("--environment", type=Path, default=Path(".cache/voices-venv"), help="for SpectralCluster")
    parser.add_argument("--set", choices=tuple(_SETS), action="append", help="default: both")
    parser.add_argument("--model", type=Path, help="a published speaker model; default: the packaged GE2E")
    parser.add_argument("--seeds", type=int, default=1, help="conversations of each kind")
    add_cost_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    if arguments.cost:
        run_cost(arguments.seconds, arguments.embedder, arguments.device)
        return
    torch.set_num_threads(1)
    diarizer = Diarizer(load_embedder(arguments.model))
    segmenter = Segmenter(FsmnNetwork.load())
    print_header(
        f"Speakers, {diarizer.embedder.name} embeddings",
        "conversations of 1 to 6 voices, 8 to 60 s for each, clean, in a room, by telephone (bench/conversations.py)",
        "all systems get the segments of our VAD and the same window embeddings; one CPU thread",
    )
    for name in arguments.set or _SETS:
        _report(name, arguments, diarizer, segmenter)


def _report(name: str, arguments: argparse.Namespace, diarizer: Diarizer, segmenter: Segmenter) -> None:
    conversations = list(_conversations(name, arguments.voices, arguments.seeds))
    inputs = []
    clock = dict.fromkeys(("VAD", "embedding", "clustering"), 0.0)
    for talk in conversations:
        with _timed(clock, "VAD"):
            spans = segmenter.segments(talk.waveform)
        job = diarizer.start(talk.waveform, spans)
        with _timed(clock, "embedding"):
            embeddings = _embeddings(job)
        inputs.append((talk, spans, job, embeddings))
    peer = _spectralcluster(arguments.environment, [embeddings for *_, embeddings in inputs])
    systems = ["tinglu", "tinglu, count given", "published", "published, count given", "NME-SC", "average linkage"]
    systems += ["SpectralCluster"] if peer else []
    scores = {(system, condition): Score() for system in systems for condition in CONDITIONS}
    for number, (talk, spans, job, embeddings) in enumerate(inputs):
        words = _words(talk)
        given = DiarizationOptions(num_speakers=talk.voices)
        with _timed(clock, "clustering"):
            ours = job.concluded(embeddings)
        answers = {"tinglu": _ours(ours.turns, ours.speakers, spans, words)}
        asked = diarizer.start(talk.waveform, spans, given)
        asked.wanted(0)
        known = asked.concluded(embeddings)
        answers["tinglu, count given"] = _ours(known.turns, known.speakers, spans, words)
        answers["published"] = _published(job, published_labels(embeddings), spans, words)
        answers["published, count given"] = _published(job, published_labels(embeddings, talk.voices), spans, words)
        # Their labels with our timeline: only the clustering differs.
        answers["NME-SC"] = _labelled(job, nme_sc_labels(embeddings), spans, words)
        linked = agglomerative_labels(embeddings, AVERAGE_LINKAGE_CUT)
        answers["average linkage"] = _labelled(job, linked, spans, words)
        if peer:
            answers["SpectralCluster"] = _published(job, in_order(peer[number]), spans, words)
        for system, answer in answers.items():
            _add(scores[system, _condition(talk)], talk, words, answer)
    seconds = sum(len(talk.waveform) for talk in conversations) / 16_000
    print(f"## {name}: {len(conversations)} conversations, {seconds / 60:.0f} min\n")
    print_table(
        ("system", "sound", "DER %, collar 0.25 s", "DER %, no collar", "confused %", "count wrong", "words wrong %"),
        [_row(system, scores, condition) for system in systems for condition in (*CONDITIONS, "all")],
    )
    costs = ", ".join(f"{what} {1000 * value / seconds:.2f}" for what, value in clock.items())
    print(f"\nms for a second of sound: {costs}\n")


class _timed:  # noqa: N801
    """Adds the seconds inside to a clock."""

    def __init__(self, clock: dict[str, float], what: str) -> None:
        self._clock, self._what = clock, what

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._clock[self._what] += time.perf_counter() - self._started


def _conversations(name: str, directory: Path, seeds: int) -> Iterator[Conversation]:
    names, first_seed = _SETS[name]
    voices = read_voices(directory, names)
    for condition in CONDITIONS:
        for speakers in range(1, MOST_VOICES + 1):
            for number, seconds in enumerate(SECONDS_EACH * seeds):
                seed = first_seed + number
                yield conversation(
                    voices, speakers=speakers, seconds=seconds * speakers + 4, condition=condition, seed=seed
                )


def _condition(talk: Conversation) -> str:
    return talk.name.partition("-")[0]


def _embeddings(job: DiarizationJob) -> Any:
    found = []
    while len(batch := job.wanted(32)):
        found.append(job.embedder(batch))
        job.take(found[-1])
    return np.concatenate(found)


def _words(talk: Conversation) -> list[Turn]:
    """Slices of 0.3 s of every turn: the recordings' own word times are not known."""
    words = []
    for turn in talk.turns:
        count = max(1, round((turn.end - turn.start) / WORD_SECONDS))
        edges = np.linspace(turn.start, turn.end, count + 1).tolist()
        words += [Turn(start, end, turn.voice) for start, end in pairwise(edges)]
    return words


def _segment_words(spans: Sequence[Span], words: Sequence[Turn]) -> list[list[int]]:
    """The words of each segment by number: a word belongs to the segment its middle is nearest to."""
    belonging: list[list[int]] = [[] for _ in spans]
    for number, word in enumerate(words):
        middle = (word.start + word.end) / 2
        distances = [max(span.start - middle, middle - span.end, 0.0) for span in spans]
        belonging[int(np.argmin(distances))].append(number)
    return belonging


def _ours(turns: Sequence[SpeakerTurn], speakers: int, spans: Sequence[Span], words: Sequence[Turn]) -> Answer:
    whose = [0] * len(words)
    for numbers in _segment_words(spans, words):
        for part in assign([words[number] for number in numbers], turns):
            for number in numbers[part.first : part.last]:
                whose[number] = part.speaker
    return Answer([(turn.start, turn.end, turn.speaker) for turn in turns], speakers, whose)


def _labelled(job: DiarizationJob, labels: Any, spans: Sequence[Span], words: Sequence[Turn]) -> Answer:
    turns = job.turns(labels, np.ones(len(labels), bool))
    return _ours(turns, len(set(labels.tolist())), spans, words)


def _published(job: DiarizationJob, labels: Any, spans: Sequence[Span], words: Sequence[Turn]) -> Answer:
    """One speaker for each segment, as the published server gives them."""
    turns = published_turns(job.windows, labels)
    whose = [0] * len(words)
    for span, numbers in zip(spans, _segment_words(spans, words), strict=True):
        speaker = published_sentence_speaker(turns, span.start, span.end)
        for number in numbers:
            whose[number] = speaker
    return Answer(turns, len(set(labels.tolist())), whose)


def _spectralcluster(environment: Path, embeddings: Sequence[Any]) -> list[Any] | None:
    """Labels of Google's SpectralCluster, or None where its environment is not there."""
    python = environment / "bin" / "python"
    if not python.exists():
        print(f"{environment} is not there: SpectralCluster left out\n")
        return None
    with tempfile.TemporaryDirectory() as directory:
        given, found = Path(directory) / "embeddings.npz", Path(directory) / "labels.npz"
        np.savez(given, **{str(number): rows for number, rows in enumerate(embeddings)})
        script = Path(__file__).parent / "spectralcluster_peer.py"
        subprocess.run([python, script, given, found], check=True)
        with np.load(found) as labels:
            return [labels[str(number)] for number in range(len(embeddings))]


def _add(score: Score, talk: Conversation, words: Sequence[Turn], answer: Answer) -> None:
    reference = [(turn.start, turn.end, turn.voice) for turn in talk.turns]
    score.collared += errors(reference, answer.turns, 0.25)
    score.strict += errors(reference, answer.turns)
    score.count_errors.append(answer.speakers - talk.voices)
    voices = sorted({word.voice for word in words})
    together = np.zeros((len(voices), max(answer.words) + 1))
    for word, speaker in zip(words, answer.words, strict=True):
        together[voices.index(word.voice), speaker] += 1
    score.words += len(words)
    score.wrong_words += len(words) - best_mapping(together)


def _row(system: str, scores: dict[tuple[str, Any], Score], condition: str) -> tuple[str, ...]:
    chosen = [score for (name, kind), score in scores.items() if name == system and condition in (kind, "all")]
    collared = sum((score.collared for score in chosen), DiarizationErrors())
    strict = sum((score.strict for score in chosen), DiarizationErrors())
    counts = [error for score in chosen for error in score.count_errors]
    words = 100 * sum(score.wrong_words for score in chosen) / sum(score.words for score in chosen)
    wrong = sum(error != 0 for error in counts)
    return (
        system,
        condition,
        f"{100 * collared.rate:.1f}",
        f"{100 * strict.rate:.1f}",
        f"{100 * collared.confused / collared.speech:.1f}",
        f"{wrong} of {len(counts)}",
        f"{words:.1f}",
    )
