"""The fields of a form about who speaks, and what they mean for the pipeline."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from app.errors import Refusal
from app.forms import Form
from app.services import Services
from app.voices import EncodedAudio, SpeakerOptions, SpeakerReference
from diarization.options import MOST_KNOWN, DiarizationOptions

_DATA_URL = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_NAMES, _REFERENCES = "known_speaker_names", "known_speaker_references"


class SpeakerFields(Form):
    """Whether speakers are told apart, how many there are, and which channels are heard."""

    spk: bool = Field(False, description="tell speakers apart")
    num_speakers: int | None = Field(None, description="how many speakers there are, with spk")
    min_speakers: int | None = Field(None, description="at least so many, with spk")
    max_speakers: int | None = Field(None, description="at most so many, with spk")
    channel: Literal["mix", "left", "right", "split"] = Field(
        "mix", description="what of a recording of several channels is heard; split: each channel is a speaker"
    )

    def speakers(
        self,
        services: Services,
        *,
        asked_by: str | None = None,
        names: Sequence[str] = (),
        references: Sequence[str] = (),
    ) -> SpeakerOptions | None:
        """What is known of the speakers, None where they are not told apart by voice.

        Args:
            asked_by: the field that asks for speakers where `spk` need not.
            names, references: known speakers, and a data URL of each.

        Raises:
            Refusal: 400, fields that contradict each other, or a server that cannot tell speakers apart.
        """
        counts = {
            name: value
            for name in ("num_speakers", "min_speakers", "max_speakers")
            if (value := getattr(self, name)) is not None
        }
        asking = "spk" if self.spk else asked_by
        given = [*counts, *([_NAMES] if names else []), *([_REFERENCES] if references else [])]
        if self.channel == "split" and given:
            raise Refusal(
                400, "invalid_value", f"`{given[0]}`: with `channel=split` a channel is a speaker.", param=given[0]
            )
        if asking is None and given:
            raise Refusal(400, "invalid_value", f"`{given[0]}` needs `spk=true` or diarized_json.", param=given[0])
        try:
            options = DiarizationOptions(**counts)
        except ValueError as error:
            raise Refusal(400, "invalid_value", f"Speakers: {error}", param=next(iter(counts))) from error
        if asking is None or self.channel == "split":
            return None
        require_speakers(services, asking)
        return SpeakerOptions(options, _known(names, references))


def require_speakers(services: Services, param: str) -> None:
    """Nothing, if the server has a speaker model.

    Raises:
        Refusal: 400.
    """
    if not services.pipeline.tells_speakers:
        raise Refusal(
            400,
            "unsupported_parameter",
            f"`{param}`: this server has no model that tells speakers apart; leave it out.",
            param=param,
        )


def _known(names: Sequence[str], references: Sequence[str]) -> tuple[SpeakerReference, ...]:
    if len(names) != len(references):
        message = f"{len(names)} names of known speakers and {len(references)} references: there must be one of each."
        raise Refusal(400, "invalid_value", message, param=_REFERENCES)
    if len(names) > MOST_KNOWN or len(set(names)) < len(names):
        message = f"Known speakers have different names, and there are at most {MOST_KNOWN}."
        raise Refusal(400, "invalid_value", message, param=_NAMES)
    try:
        return tuple(SpeakerReference(name, _content(url)) for name, url in zip(names, references, strict=True))
    except ValueError as error:
        raise Refusal(400, "invalid_value", f"Invalid `{_REFERENCES}`: {error}", param=_REFERENCES) from None


def _content(url: str) -> EncodedAudio:
    """The recording in a data URL.

    Raises:
        ValueError: it is none.
    """
    begin = _DATA_URL.match(url)
    if begin is None:
        raise ValueError("a reference is a data URL: data:audio/wav;base64,...")
    try:
        return EncodedAudio(base64.b64decode(url[begin.end() :], validate=True))
    except binascii.Error as error:
        raise ValueError(f"the data of a URL is not base64: {error}") from None
