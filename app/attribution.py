"""Segments to speakers: a segment in which the speaker changes becomes several, cut between its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.transcript import Segment
from diarization.assignment import Run, assign, speaker_of
from engine.recognition import Word

if TYPE_CHECKING:
    from diarization.timeline import SpeakerTurn


def speaker_letter(number: int) -> str:
    """A to Z, then AA, AB ..."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def speaker_labels(names: Sequence[str | None]) -> tuple[str, ...]:
    """A label for each speaker: his name if he is known, otherwise the next letter that is nobody's name."""
    taken = {name for name in names if name is not None}
    letters = (letter for number in range(len(names) + len(taken)) if (letter := speaker_letter(number)) not in taken)
    return tuple(next(letters) if name is None else name for name in names)


@dataclass(slots=True)
class Attribution:
    """Gives segments their speakers, numbered from 0 as they appear in the transcript.

    A turn in which no text was heard has a speaker too, but nobody would see him: numbers and labels count those who
    say something.
    """

    turns: Sequence[SpeakerTurn]
    names: Sequence[str | None]
    _labels: dict[int, tuple[int, str]] = field(default_factory=dict)

    def attributed(self, segment: Segment) -> Iterator[Segment]:
        """The segment, or the parts of it that different speakers said, in order."""
        if segment.words:
            runs = assign(segment.words, self.turns)
            if len(runs) > 1:
                yield from map(self._labelled, _parts(segment, segment.words, runs), (run.speaker for run in runs))
                return
            speaker = runs[0].speaker if runs else None
        else:
            speaker = speaker_of(segment.start, segment.end, self.turns)
        yield segment if speaker is None else self._labelled(segment, speaker)

    def _labelled(self, segment: Segment, speaker: int) -> Segment:
        number, label = self._labels.get(speaker) or self._next_label(speaker)
        return replace(segment, speaker=number, speaker_label=label)

    def _next_label(self, speaker: int) -> tuple[int, str]:
        heard = [*self._labels, speaker]
        # A known name may be a letter: it is kept for its owner, even if he has not spoken yet.
        unheard = [name for name in self.names if name is not None]
        labels = speaker_labels([*(self.names[each] for each in heard), *unheard])
        self._labels[speaker] = (len(heard) - 1, labels[len(heard) - 1])
        return self._labels[speaker]


def _parts(segment: Segment, words: Sequence[Word], runs: Sequence[Run]) -> Iterator[Segment]:
    """The segment cut at runs of words; what belongs to its text as a whole goes with the first part."""
    for number, run in enumerate(runs):
        # A word carries the space in front of it, which a text does not begin with.
        first, *rest = words[run.first : run.last]
        said = (replace(first, text=first.text.lstrip()), *rest)
        part = replace(
            segment,
            start=first.start if number else segment.start,
            end=segment.end if number == len(runs) - 1 else said[-1].end,
            text="".join(word.text for word in said),
            words=said,
        )
        yield replace(part, tokens=(), logprobs=None, warnings=()) if number else part
