from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from engine.native.ct2 import Tensor

_KINDS = {"float32": 0, "int8": 1, "int16": 2, "float16": 4}


def _string(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def _pack(variables: Mapping[str, Tensor], specification: str = "WhisperSpec") -> bytes:
    parts = [struct.pack("<I", 6), _string(specification), struct.pack("<II", 3, len(variables))]
    for name, value in variables.items():
        parts += [_string(name), struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)]
        parts += [struct.pack("<BI", _KINDS[str(value.dtype)], value.nbytes), value.tobytes()]
    parts += [struct.pack("<I", 1), _string("decoder/projection/weight"), _string("decoder/embeddings/weight")]
    return b"".join(parts)


@pytest.fixture
def pack_ct2() -> Callable[..., bytes]:
    """Writes tensors as a CTranslate2 model file."""
    return _pack


@pytest.fixture
def tiny_whisper() -> dict[str, Tensor]:
    """The variables of a Whisper with one layer on each side and a width of 4, every tensor with other values."""
    width, inner, shapes = 4, 8, dict[str, tuple[int, ...]]()
    for side in ("encoder", "decoder"):
        blocks = {"self_attention": (3, 1)} | ({"attention": (1, 2, 1)} if side == "decoder" else {})
        for block, linears in blocks.items():
            for number, count in enumerate(linears):
                shapes[f"{side}/layer_0/{block}/linear_{number}/weight"] = (count * width, width)
                shapes[f"{side}/layer_0/{block}/linear_{number}/bias"] = (count * width,)
            shapes |= {f"{side}/layer_0/{block}/layer_norm/{kind}": (width,) for kind in ("gamma", "beta")}
        shapes |= {
            f"{side}/layer_0/ffn/linear_0/weight": (inner, width),
            f"{side}/layer_0/ffn/linear_0/bias": (inner,),
            f"{side}/layer_0/ffn/linear_1/weight": (width, inner),
            f"{side}/layer_0/ffn/linear_1/bias": (width,),
            f"{side}/position_encodings/encodings": (6 if side == "encoder" else 5, width),
        }
        for norm in ("layer_0/ffn/layer_norm", "layer_norm"):
            shapes |= {f"{side}/{norm}/{kind}": (width,) for kind in ("gamma", "beta")}
    shapes |= {
        "decoder/embeddings/weight": (11, width),
        "encoder/conv1/weight": (width, 80, 3),
        "encoder/conv1/bias": (width,),
        "encoder/conv2/weight": (width, width, 3),
        "encoder/conv2/bias": (width,),
    }
    random = np.random.default_rng(0)
    variables: dict[str, Tensor] = {name: random.normal(size=s).astype(np.float16) for name, s in shapes.items()}
    return variables | {f"{side}/num_heads": np.array(2, np.int16) for side in ("encoder", "decoder")}
