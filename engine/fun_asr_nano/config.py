"""The published configuration as frozen dataclasses: sizes come from here, never from constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.fun_asr_nano.errors import UnsupportedConfig

_T = TypeVar("_T", int, float, bool, str)


@dataclass(frozen=True, slots=True)
class FrontendConfig:
    """Log-mel frames, one every `frame_shift_ms`; `stack` of them make a row, one every `stride` frames."""

    mels: int
    stack: int
    stride: int
    frame_length_ms: int
    frame_shift_ms: int

    @property
    def width(self) -> int:
        return self.mels * self.stack

    @property
    def row_seconds(self) -> float:
        """Time between two encoder rows."""
        return self.stride * self.frame_shift_ms / 1000


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The SAN-M encoder. `blocks` counts the first, wider one; `shift` moves the memory's window to the future."""

    input_dim: int
    dim: int
    heads: int
    ffn_dim: int
    blocks: int
    tp_blocks: int
    kernel: int
    shift: int


@dataclass(frozen=True, slots=True)
class AdaptorConfig:
    """A two-layer projection and `layers` transformer blocks of width `dim`."""

    input_dim: int
    ffn_dim: int
    dim: int
    layers: int
    heads: int


@dataclass(frozen=True, slots=True)
class CtcConfig:
    """The CTC decoder, and the vocabulary of its head with the blank in it."""

    decoder: AdaptorConfig
    vocabulary: int
    blank: int


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """The decoder-only language model: Qwen3."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    max_positions: int


@dataclass(frozen=True, slots=True)
class NanoConfig:
    """A whole model. `ctc` is the reason where there is none; `lora_alpha` None where no update is configured."""

    frontend: FrontendConfig
    encoder: EncoderConfig
    adaptor: AdaptorConfig
    low_frame_rate: bool
    ctc: CtcConfig | str
    llm: LlmConfig
    lora_alpha: float | None

    def audio_tokens(self, rows: int) -> int:
        """How many embeddings of the prompt stand for `rows` encoder rows."""
        return -(-rows // 8) if self.low_frame_rate else rows


class _Reader:
    """Typed access to one section of the configuration, with the name of the key in every complaint."""

    def __init__(self, section: Any, name: str) -> None:
        if section is None:
            section = {}
        if not isinstance(section, Mapping):
            raise UnsupportedConfig(f"{name}: expected a section, found {section!r}")
        self._section, self._name = section, name

    def get(self, key: str, default: _T) -> _T:
        value = self._section.get(key, default)
        if isinstance(default, float) and isinstance(value, int):
            value = float(value)
        if type(value) is not type(default):
            raise UnsupportedConfig(f"{self._name}.{key}: expected {type(default).__name__}, found {value!r}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer; required where there is no default."""
        if default is None and key not in self._section:
            raise UnsupportedConfig(f"{self._name}.{key} is missing")
        value = self.get(key, 1 if default is None else default)
        if value < 1:
            raise UnsupportedConfig(f"{self._name}.{key}: expected at least 1, found {value}")
        return value

    def require(self, key: str, *allowed: Any) -> None:
        """Refuse a value that would change what is computed; an absent key means the first one."""
        value = self._section.get(key, allowed[0])
        if value not in allowed:
            raise UnsupportedConfig(f"{self._name}.{key}: {value!r} is not supported, only {allowed[0]!r}")


def parse_config(config: Mapping[str, Any], llm: Mapping[str, Any]) -> NanoConfig:
    """Sizes of every part, from `config.yaml` and the language model's `config.json`.

    Raises:
        UnsupportedConfig: a key is missing, of a wrong type, or asks for something else than the published model
        computes.
    """
    root = _Reader(config, "config.yaml")
    root.require("audio_encoder", "SenseVoiceEncoderSmall")
    root.require("audio_adaptor", "Transformer")
    root.require("frontend", "WavFrontend")
    frontend = _frontend(_Reader(config.get("frontend_conf"), "frontend_conf"))
    encoder = _encoder(_Reader(config.get("audio_encoder_conf"), "audio_encoder_conf"), frontend.width)
    section = _Reader(config.get("audio_adaptor_conf"), "audio_adaptor_conf")
    adaptor = _adaptor(section)
    language_model = _llm(_Reader(llm, "config.json of the language model"))
    if adaptor.input_dim != encoder.dim:
        raise UnsupportedConfig(
            f"audio_adaptor_conf.encoder_dim is {adaptor.input_dim}, the encoder gives {encoder.dim}"
        )
    if adaptor.dim != language_model.hidden:
        raise UnsupportedConfig(
            f"audio_adaptor_conf.llm_dim is {adaptor.dim}, the language model's hidden_size {language_model.hidden}"
        )
    return NanoConfig(
        frontend=frontend,
        encoder=encoder,
        adaptor=adaptor,
        low_frame_rate=section.get("use_low_frame_rate", False),
        ctc=_ctc(config, root, encoder),
        llm=language_model,
        lora_alpha=_lora_alpha(config.get("llm_conf")),
    )


def _frontend(section: _Reader) -> FrontendConfig:
    section.require("fs", 16000)
    section.require("window", "hamming")
    section.require("cmvn_file", None)
    return FrontendConfig(
        mels=section.size("n_mels", 80),
        stack=section.size("lfr_m", 7),
        stride=section.size("lfr_n", 6),
        frame_length_ms=section.size("frame_length", 25),
        frame_shift_ms=section.size("frame_shift", 10),
    )


def _encoder(section: _Reader, input_dim: int) -> EncoderConfig:
    section.require("input_layer", "pe")
    section.require("selfattention_layer_type", "sanm")
    section.require("normalize_before", True)
    dim, heads = section.size("output_size"), section.size("attention_heads")
    if dim % heads:
        raise UnsupportedConfig(f"audio_encoder_conf.output_size {dim} is not divisible by attention_heads {heads}")
    return EncoderConfig(
        input_dim=input_dim,
        dim=dim,
        heads=heads,
        ffn_dim=section.size("linear_units"),
        blocks=section.size("num_blocks"),
        tp_blocks=section.get("tp_blocks", 0),
        kernel=section.size("kernel_size", 11),
        shift=section.get("sanm_shfit", 0),  # spelled so in the published file
    )


def _adaptor(section: _Reader) -> AdaptorConfig:
    section.require("downsample_rate", 1)
    dim, heads = section.size("llm_dim"), section.size("attention_heads", 8)
    if dim % heads:
        raise UnsupportedConfig(f"llm_dim {dim} of an adaptor is not divisible by attention_heads {heads}")
    return AdaptorConfig(
        input_dim=section.size("encoder_dim"),
        ffn_dim=section.size("ffn_dim"),
        dim=dim,
        layers=section.size("n_layer", 2),
        heads=heads,
    )


def _ctc(config: Mapping[str, Any], root: _Reader, encoder: EncoderConfig) -> CtcConfig | str:
    if not config.get("ctc_decoder"):
        return "config.yaml has no ctc_decoder"
    try:
        root.require("ctc_decoder", "Transformer")
        vocabulary = root.size("ctc_vocab_size", 60515)
        blank = _Reader(config.get("ctc_conf"), "ctc_conf").get("blank_id", vocabulary - 1)
        decoder = _adaptor(_Reader(config.get("ctc_decoder_conf"), "ctc_decoder_conf"))
    except UnsupportedConfig as error:
        return str(error)
    if decoder.input_dim != encoder.dim:
        return f"ctc_decoder_conf.encoder_dim is {decoder.input_dim}, the encoder gives {encoder.dim}"
    if not 0 <= blank < vocabulary:
        return f"ctc_conf.blank_id {blank} is outside the vocabulary of {vocabulary}"
    return CtcConfig(decoder, vocabulary, blank)


def _llm(section: _Reader) -> LlmConfig:
    section.require("model_type", "qwen3")
    section.require("attention_bias", False)
    hidden, heads = section.size("hidden_size"), section.size("num_attention_heads")
    return LlmConfig(
        hidden=hidden,
        layers=section.size("num_hidden_layers"),
        heads=heads,
        kv_heads=section.size("num_key_value_heads", heads),
        head_dim=section.size("head_dim", hidden // heads),
        intermediate=section.size("intermediate_size"),
        vocabulary=section.size("vocab_size"),
        tied=section.get("tie_word_embeddings", False),
        max_positions=section.size("max_position_embeddings"),
    )


def _lora_alpha(llm_conf: Any) -> float | None:
    section = llm_conf.get("lora_conf") if isinstance(llm_conf, Mapping) else None
    if not section:
        return None
    reader = _Reader(section, "llm_conf.lora_conf")
    reader.require("use_rslora", False, None)
    if "lora_alpha" not in section:
        raise UnsupportedConfig("llm_conf.lora_conf.lora_alpha is missing")
    return reader.get("lora_alpha", 0.0)
