"""Features, encoder, adaptor and CTC head against the reference, and a padded batch against single runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.fun_asr_nano.acoustic import AcousticModel
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.frontend import Frontend

Arrays = Mapping[str, NDArray[np.float32]]
NAMES = ("nano-0.5s", "nano-3.1s", "jfk", "nano-29.7s")
FROM_STAGE, FROM_WAVEFORM, FEATURES = 2e-5, 2e-4, 5e-3


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> AcousticModel:
    return AcousticModel.load(checkpoint, max_rows=1000)


def lengths(rows: torch.Tensor) -> torch.Tensor:
    return torch.tensor([rows.shape[-2]])


@pytest.mark.parametrize("name", NAMES)
def test_each_stage_from_the_golden_before_it(checkpoint: Checkpoint, arrays: Arrays, name: str) -> None:
    features = torch.from_numpy(arrays[f"{name}/lfr"])[None]
    golden_encoded = torch.from_numpy(arrays[f"{name}/encoder"])[None]
    encoded = checkpoint.encoder(max_rows=500)(features, lengths(features))
    assert (encoded - golden_encoded).abs().max() < FROM_STAGE
    tokens = checkpoint.config.audio_tokens(features.shape[1])
    adapted = checkpoint.adaptor()(golden_encoded, lengths(golden_encoded), tokens)
    assert (adapted[0] - torch.from_numpy(arrays[f"{name}/adaptor"])).abs().max() < FROM_STAGE
    head = checkpoint.ctc_head()
    assert head is not None
    log_probs = head.log_probs(head(golden_encoded, lengths(golden_encoded))[0]).numpy()
    assert np.array_equal(log_probs.argmax(-1), arrays[f"{name}/ctc_argmax"])
    assert np.abs(log_probs[arrays[f"{name}/ctc_row_numbers"]] - arrays[f"{name}/ctc_rows"]).max() < FROM_STAGE


@pytest.mark.parametrize("name", NAMES)
def test_all_stages_from_the_waveform(
    checkpoint: Checkpoint,
    model: AcousticModel,
    arrays: Arrays,
    waveform: Callable[[str], NDArray[np.float32]],
    name: str,
) -> None:
    (rows,) = Frontend(checkpoint.config.frontend)([waveform(name)])
    assert np.abs(rows.numpy() - arrays[f"{name}/lfr"]).max() < FEATURES
    (heard,) = model.hear([rows])
    assert (heard.embeddings - torch.from_numpy(arrays[f"{name}/adaptor"])).abs().max() < FROM_WAVEFORM
    assert heard.ctc is not None
    assert model.ctc is not None
    log_probs = model.ctc.log_probs(heard.ctc).numpy()
    assert np.array_equal(log_probs.argmax(-1), arrays[f"{name}/ctc_argmax"])
    assert np.abs(log_probs[arrays[f"{name}/ctc_row_numbers"]] - arrays[f"{name}/ctc_rows"]).max() < FROM_WAVEFORM


def test_a_padded_batch_gives_what_each_gives_alone(model: AcousticModel, arrays: Arrays) -> None:
    features = [torch.from_numpy(arrays[f"{name}/lfr"]) for name in NAMES] + [torch.randn(1, 560), torch.randn(9, 560)]
    for together, rows in zip(model.hear(features), features, strict=True):
        (alone,) = model.hear([rows])
        assert together.embeddings.shape == alone.embeddings.shape == (-(-len(rows) // 8), 64)
        assert (together.embeddings - alone.embeddings).abs().max() < FROM_STAGE
        assert together.ctc is not None
        assert alone.ctc is not None
        assert together.ctc.shape == alone.ctc.shape == (len(rows), 32)
        assert (together.ctc - alone.ctc).abs().max() < FROM_STAGE


def test_what_lies_in_the_padding_does_not_matter(checkpoint: Checkpoint) -> None:
    encoder, adaptor = checkpoint.encoder(max_rows=20), checkpoint.adaptor()
    features, sizes = torch.randn(2, 20, 560), torch.tensor([20, 7])
    encoded = encoder(features, sizes)
    features[1, 7:] = 1e4
    again = encoder(features, sizes)
    assert torch.equal(encoded[0], again[0])
    assert (encoded[1, :7] - again[1, :7]).abs().max() < FROM_STAGE
    before = adaptor(encoded, sizes, 3)
    encoded[1, 7:] = 1e4
    assert (adaptor(encoded, sizes, 3)[1, :1] - before[1, :1]).abs().max() < FROM_STAGE


def test_leading_rows_of_the_adaptor_are_those_of_all(checkpoint: Checkpoint) -> None:
    encoded, sizes = torch.randn(2, 40, 32), torch.tensor([40, 33])
    adaptor = checkpoint.adaptor()
    every = adaptor(encoded, sizes)
    assert every.shape == (2, 40, 64)
    assert (adaptor(encoded, sizes, 5) - every[:, :5]).abs().max() < FROM_STAGE


def test_chosen_labels_are_columns_of_the_whole(checkpoint: Checkpoint) -> None:
    head = checkpoint.ctc_head()
    assert head is not None
    hidden, labels = torch.randn(50, 32), torch.tensor([[2078, 5, 7], [2078, 1, 2]])
    owners = torch.arange(50) // 25
    whole = head.log_probs(hidden)
    assert (head.label_log_probs(hidden, owners, labels) - whole.gather(1, labels[owners])).abs().max() < FROM_STAGE


def test_bfloat16_stays_near(checkpoint: Checkpoint, arrays: Arrays) -> None:
    """The drift of eight bits of mantissa through five layers and two blocks, relative to the spread of the values."""
    model = AcousticModel.load(checkpoint, max_rows=500, dtype=torch.bfloat16)
    (heard,) = model.hear([torch.from_numpy(arrays["jfk/lfr"])])
    expected = torch.from_numpy(arrays["jfk/adaptor"])
    assert heard.embeddings.dtype == torch.bfloat16
    assert (heard.embeddings.float() - expected).square().mean().sqrt() / expected.std() < 0.02


def test_nothing_depends_on_data(checkpoint: Checkpoint) -> None:
    """On the meta device anything that asked for a value, or a shape from one, would fail."""
    encoder, adaptor, head = checkpoint.encoder(max_rows=30), checkpoint.adaptor(), checkpoint.ctc_head()
    assert head is not None
    features, sizes = torch.zeros(3, 30, 560, device="meta"), torch.zeros(3, dtype=torch.int64, device="meta")
    encoded = encoder.to("meta")(features, sizes)
    assert adaptor.to("meta")(encoded, sizes, 4).shape == (3, 4, 64)
    hidden = head.to("meta")(encoded, sizes)
    assert hidden.shape == (3, 30, 32)
    owners, labels = sizes.new_zeros(90), sizes.new_zeros(3, 8)
    assert head.label_log_probs(hidden.flatten(0, 1), owners, labels).shape == (90, 8)


@pytest.mark.parametrize("shape", [(0, 560), (1001, 560), (5, 80), (560,)])
def test_features_that_do_not_fit_are_refused(model: AcousticModel, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        model.hear([torch.zeros(shape)])


def test_nothing_gives_nothing(checkpoint: Checkpoint, model: AcousticModel) -> None:
    assert model.hear([]) == []
    assert Frontend(checkpoint.config.frontend)([]) == []


def test_short_segments_have_the_rows_that_were_promised(checkpoint: Checkpoint) -> None:
    frontend = Frontend(checkpoint.config.frontend)
    sizes = [0, 1, 2, 300, 399, 400, 1359, 1360, 16000]
    rows = frontend([np.random.default_rng(0).standard_normal(size).astype(np.float32) * 0.1 for size in sizes])
    assert [len(item) for item in rows] == [frontend.rows(size) for size in sizes] == [0, 0, 1, 1, 1, 1, 1, 2, 17]
    assert all(torch.isfinite(item).all() for item in rows)
