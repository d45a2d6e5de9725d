"""Fun-ASR-Nano at full size on a GPU, with random weights: run by hand, `pytest -m gpu tests/gpu`.

The checkpoint is TINGLU_FULL_CHECKPOINT_DIR, or made here in about a minute. Its texts are noise; to have them whole,
and not only what the cut tokenizer of the goldens can spell, TINGLU_QWEN_TIKTOKEN names Qwen's rank table (see
`tests/parity/make_qwen_tokenizer.py`). No network, and nothing beyond what the server itself needs.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from audio.shared import Waveform
from audio.span import Span
from engine.catalog import ResolvedModel
from engine.fun_asr_nano.acoustic import AcousticModel, Heard
from engine.fun_asr_nano.alignment import AlignmentJob, CtcAligner
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.frontend import Frontend
from engine.fun_asr_nano.graphs import BatchShape
from engine.fun_asr_nano.load import load_fun_asr_nano
from engine.fun_asr_nano.recognizer import FunAsrNanoRecognizer
from engine.recognition import DecodingOptions, Recognition
from engine.stage import Output

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # what vLLM and its kernels say on a GPU is not ours to mend
    pytest.mark.timeout(900),
]

TESTS = Path(__file__).parents[1]
MAX_ROWS = 1001

# A bfloat16 number has 8 significant bits: rounding to it errs by up to 2^-9, uniformly, so by 2^-9 / sqrt(3) rms. A
# layer of the encoder rounds 12 times (two norms, four projections, attention, convolution, four sums); 70 layers that
# err independently, on a residual stream that passes errors on as they are, come to sqrt(12 * 70) of that.
BFLOAT16_DRIFT = math.sqrt(12 * 70) * 2**-9 / math.sqrt(3)
FLOAT32_DRIFT = 1e-4
"""Between float32 kernels that sum in another order: 2^-24 grown by the same factor, and room for TF32-free GEMMs."""


def relative_rms(values: Tensor, reference: Tensor) -> float:
    return float((values.float() - reference.float()).norm() / reference.float().norm())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full-size checkpoint in the published layout."""
    if given := os.environ.get("TINGLU_FULL_CHECKPOINT_DIR"):
        return Path(given)
    made = tmp_path_factory.mktemp("full") / "Fun-ASR-Nano-2512"
    tokenizer = TESTS / "parity" / "nano-tiny" / "Qwen3-0.6B"
    if ranks := os.environ.get("TINGLU_QWEN_TIKTOKEN"):
        tokenizer = made.with_name("tokenizer")
        subprocess.run([sys.executable, TESTS / "parity" / "make_qwen_tokenizer.py", ranks, tokenizer], check=True)
    script = TESTS / "parity" / "make_nano_checkpoint.py"
    subprocess.run([sys.executable, script, made, "--tokenizer", tokenizer, "--size", "full"], check=True)
    return made


@pytest.fixture(scope="module")
def checkpoint(directory: Path) -> Checkpoint:
    return Checkpoint.open(directory)


@pytest.fixture(scope="module")
def jfk() -> Waveform:
    with wave.open(str(TESTS / "data" / "jfk.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return (samples / 32768).astype(np.float32)


@pytest.fixture(scope="module")
def clips(jfk: Waveform) -> list[Waveform]:
    """Ragged: 0.3 s to 30 s."""
    return [np.resize(jfk, int(seconds * 16000)) for seconds in (11.0, 0.3, 30.0, 4.7, 4.7, 19.2)]


@pytest.fixture(scope="module")
def features(checkpoint: Checkpoint, clips: list[Waveform]) -> list[Tensor]:
    return Frontend(checkpoint.config.frontend, device="cuda")(clips)


@pytest.fixture(scope="module")
def float32(checkpoint: Checkpoint) -> AcousticModel:
    return AcousticModel.load(checkpoint, max_rows=MAX_ROWS, device="cuda")


@pytest.fixture(scope="module")
def bfloat16(checkpoint: Checkpoint) -> AcousticModel:
    return AcousticModel.load(checkpoint, max_rows=MAX_ROWS, dtype=torch.bfloat16, device="cuda")


@pytest.fixture
def _tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture
def _exact() -> Iterator[None]:
    """Convolutions may use TF32 unless told otherwise, matrix products only if told to."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="module")
def recognizer(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunAsrNanoRecognizer]:
    model = ResolvedModel("fun-asr-nano", "fun_asr_nano", directory)
    loaded = load_fun_asr_nano(model, "cuda", tmp_path_factory.mktemp("cache"))
    yield loaded
    loaded.close()


def parts(heard: Heard) -> dict[str, Tensor]:
    """Embeddings and CTC rows, which both come from the encoder's rows."""
    assert heard.ctc is not None
    return {"adaptor": heard.embeddings, "ctc": heard.ctc}


@pytest.mark.usefixtures("_tf32")
def test_features_do_not_depend_on_tf32(checkpoint: Checkpoint, clips: list[Waveform]) -> None:
    """TF32 rounds energies to 2^-11, which a logarithm turns into 5e-4."""
    ours = Frontend(checkpoint.config.frontend, device="cuda")(clips)
    for got, wanted in zip(ours, Frontend(checkpoint.config.frontend)(clips), strict=True):
        np.testing.assert_allclose(got.cpu().numpy(), wanted.numpy(), atol=5e-3, rtol=0)


@pytest.mark.usefixtures("_exact")
def test_float32_is_what_a_cpu_computes(checkpoint: Checkpoint, float32: AcousticModel, features: list[Tensor]) -> None:
    few = features[:2]
    there = AcousticModel.load(checkpoint, max_rows=MAX_ROWS).hear([rows.cpu() for rows in few])
    for got, wanted in zip(float32.hear(few), there, strict=True):
        for name, values in parts(got).items():
            assert relative_rms(values.cpu(), parts(wanted)[name]) < FLOAT32_DRIFT, name


@pytest.mark.usefixtures("_exact")
def test_bfloat16_stays_near_float32(
    checkpoint: Checkpoint, float32: AcousticModel, bfloat16: AcousticModel, features: list[Tensor]
) -> None:
    encoders = [checkpoint.encoder(max_rows=MAX_ROWS, dtype=t, device="cuda") for t in (torch.float32, torch.bfloat16)]
    with torch.inference_mode():
        length = torch.tensor([len(features[0])], device="cuda")
        rows = [encoder(features[0][None].to(encoder.positions.dtype), length) for encoder in encoders]
    drift = {"encoder": [relative_rms(rows[1], rows[0])], "adaptor": [], "ctc": []}
    for got, wanted in zip(bfloat16.hear(features), float32.hear(features), strict=True):
        for name, values in parts(got).items():
            drift[name].append(relative_rms(values, parts(wanted)[name]))
    print({name: [f"{value:.4f}" for value in values] for name, values in drift.items()}, f"< {BFLOAT16_DRIFT:.4f}")
    assert max(value for values in drift.values() for value in values) < BFLOAT16_DRIFT


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_padded_batch_is_every_segment_alone(
    precision: str, request: pytest.FixtureRequest, features: list[Tensor]
) -> None:
    model: AcousticModel = request.getfixturevalue(precision)
    limit = FLOAT32_DRIFT if precision == "float32" else BFLOAT16_DRIFT
    for together, rows in zip(model.hear(features), features, strict=True):
        (alone,) = model.hear([rows])
        for name, values in parts(together).items():
            assert relative_rms(values, parts(alone)[name]) < limit, name


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_recorded_batch_is_a_plain_one(precision: str, checkpoint: Checkpoint, features: list[Tensor]) -> None:
    dtype = getattr(torch, precision)
    limit = FLOAT32_DRIFT if precision == "float32" else BFLOAT16_DRIFT
    model = AcousticModel.load(checkpoint, max_rows=MAX_ROWS, dtype=dtype, device="cuda")
    batches = [features, features[3:5], features[1:2], features]
    plain = [model.hear(batch) for batch in batches]
    model.record([BatchShape(8, 512), BatchShape(2, 96), BatchShape(1, 64)])
    for batch, expected in zip(batches, plain, strict=True):
        for got, wanted in zip(model.hear(batch), expected, strict=True):
            for name, values in parts(got).items():
                assert values.shape == parts(wanted)[name].shape
                assert relative_rms(values, parts(wanted)[name]) < limit, name


@pytest.mark.usefixtures("_exact")
def test_alignment_is_that_of_a_cpu(checkpoint: Checkpoint, float32: AcousticModel, features: list[Tensor]) -> None:
    assert checkpoint.ctc_tokenizer is not None
    hidden = [heard.ctc for heard in float32.hear(features)]
    found = []
    for device in ("cuda", "cpu"):
        head = checkpoint.ctc_head(device=device)
        assert head is not None
        aligner = CtcAligner(head, checkpoint.ctc_tokenizer, row_seconds=0.06)
        jobs = [
            AlignmentJob(rows.to(device), "一丁丂七丄" * (1 + len(rows) // 40)) for rows in hidden if rows is not None
        ]
        found.append(aligner.pieces(jobs))
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        rows = [[(piece.start_row, piece.end_row) for piece in pieces or []] for pieces in (ours, theirs)]
        assert rows[0] == rows[1]


def transcribe(recognizer: FunAsrNanoRecognizer, waveform: Waveform, *spans: Span, call: int = 1) -> list[Output]:
    recognizer.submit(call, waveform, Recognition(spans, DecodingOptions(max_new_tokens=64)))
    outputs: list[Output] = []
    while recognizer.busy:
        outputs += recognizer.step()
    assert all(output.error is None for output in outputs)
    return outputs


def test_it_transcribes_a_recording(recognizer: FunAsrNanoRecognizer, jfk: Waveform) -> None:
    (output,) = transcribe(recognizer, jfk, Span(0.0, 11.0))
    assert output.last
    assert 0 < len(output.value.tokens) <= 64
    assert recognizer.capabilities.word_timestamps
    if output.value.words:
        assert "".join(word.text for word in output.value.words) == output.value.text


def test_a_load_of_calls_comes_back_whole(recognizer: FunAsrNanoRecognizer, jfk: Waveform) -> None:
    recording = np.resize(jfk, 60 * 16000)
    rng = np.random.default_rng(0)
    wanted = {}
    for call in range(64):
        starts = rng.uniform(0.0, 30.0, rng.integers(1, 12))
        spans = tuple(Span(start, start + rng.uniform(0.3, 29.0)) for start in starts)
        hotwords = tuple(f"name{n}" for n in range(call % 4))
        options = DecodingOptions(language=(None, "zh", "en")[call % 3], hotwords=hotwords, max_new_tokens=48)
        recognizer.submit(call, recording, Recognition(spans, options))
        wanted[call] = len(spans)
    outputs: list[Output] = []
    for _ in range(20):
        outputs += recognizer.step()
    finished = {output.call_id for output in outputs if output.last}
    for call in range(0, 64, 8):
        recognizer.cancel(call)
    while recognizer.busy:
        outputs += recognizer.step()
    for call, count in wanted.items():
        if call % 8 or call in finished:
            assert sorted(output.value.index for output in outputs if output.call_id == call) == list(range(count))


def test_the_first_request_is_as_fast_as_the_next(recognizer: FunAsrNanoRecognizer, jfk: Waveform) -> None:
    """Recordings of new lengths, so that nothing but the warm-up can have prepared for them."""
    seconds = []
    for length in (7.3, 7.1, 6.9, 6.7, 6.5):
        began = time.perf_counter()
        transcribe(recognizer, jfk, Span(0.0, length))
        seconds.append(time.perf_counter() - began)
    print([f"{value:.3f} s" for value in seconds])
    assert seconds[0] < 2 * sorted(seconds)[2] + 0.1
