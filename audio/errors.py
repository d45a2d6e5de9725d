"""What can be wrong with audio that arrives; every error carries a stable machine-readable code."""

from __future__ import annotations


class AudioError(ValueError):
    """Audio that cannot be transcribed; `code` is part of the HTTP contract."""

    code = "invalid_audio"


class EmptyAudio(AudioError):
    """No bytes at all."""

    code = "empty_file"


class UndecodableAudio(AudioError):
    """Bytes that no demuxer or decoder understands, or a file cut off before anything could be decoded."""

    code = "invalid_audio"


class NoAudioStream(AudioError):
    """A container that was understood and holds no sound."""

    code = "no_audio_stream"


class TooManyChannels(AudioError):
    """More channels than are told apart, or their number changes on the way."""

    code = "too_many_channels"


class AudioTooLong(AudioError):
    """A limit on bytes, decoded seconds or decoded PCM bytes was passed; raised as soon as it is."""

    code = "audio_too_long"
