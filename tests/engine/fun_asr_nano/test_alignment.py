"""Forced alignment against the reference, against brute force, and on text that nobody expects."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.fun_asr_nano.acoustic import AcousticModel
from engine.fun_asr_nano.alignment import AlignmentJob, CtcAligner
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.placing import AlignedPiece, depends_on_score
from engine.fun_asr_nano.viterbi import align, rows_needed

NAMES = ("nano-0.5s", "nano-3.1s", "jfk", "nano-29.7s")
SCORE = 1e-3


@pytest.fixture(scope="module")
def aligner(checkpoint: Checkpoint) -> CtcAligner:
    head = checkpoint.ctc_head()
    assert head is not None
    assert checkpoint.ctc_tokenizer is not None
    return CtcAligner(head, checkpoint.ctc_tokenizer, row_seconds=checkpoint.config.frontend.row_seconds)


@pytest.fixture(scope="module")
def hidden(checkpoint: Checkpoint, arrays: Mapping[str, NDArray[np.float32]]) -> dict[str, torch.Tensor]:
    """CTC rows of the four recordings."""
    model = AcousticModel.load(checkpoint, max_rows=500)
    heard = model.hear([torch.from_numpy(arrays[f"{name}/lfr"]) for name in NAMES])
    return {name: item.ctc for name, item in zip(NAMES, heard, strict=True) if item.ctc is not None}


def golden_items(of_input: Mapping[str, Any]) -> dict[str, list[list[Any]]]:
    """Text to [token, start s, end s, score] a piece; frames are 60 ms."""
    items = {
        text: [[token, first * 0.06, last * 0.06, score] for _, token, first, last, score in fixed["items"]]
        for text, fixed in of_input["align"].items()
    }
    items |= {decoded["text"]: decoded["timestamps"] for decoded in of_input["decode"].values()}
    return items | {of_input["ctc_text"]: of_input["ctc_timestamps"]}


def same_items(pieces: list[AlignedPiece] | None, items: list[list[Any]]) -> bool:
    got = [
        (piece.data.decode(errors="replace"), round(piece.start_row * 0.06, 6), round(piece.end_row * 0.06, 6))
        for piece in pieces or []
    ]
    return got == [(token, round(start, 6), round(end, 6)) for token, start, end, _ in items] and all(
        abs(piece.score - item[3]) < SCORE for piece, item in zip(pieces or [], items, strict=True)
    )


def test_all_golden_alignments_in_one_call(
    aligner: CtcAligner, hidden: dict[str, torch.Tensor], golden: Mapping[str, Any]
) -> None:
    cases = [(name, text, items) for name in NAMES for text, items in golden_items(golden["inputs"][name]).items()]
    assert len(cases) == 32
    found = aligner.pieces([AlignmentJob(hidden[name], text) for name, text, _ in cases])
    for (name, text, items), pieces in zip(cases, found, strict=True):
        assert same_items(pieces, items), (name, text)


def test_paths_need_no_probabilities(
    aligner: CtcAligner, hidden: dict[str, torch.Tensor], golden: Mapping[str, Any]
) -> None:
    """Of texts whose word times depend on no score, the same rows; of those that do, the same scores too."""
    texts = [(name, text) for name in NAMES for text in golden_items(golden["inputs"][name])]
    texts += [("jfk", "一丁，丂七。"), ("jfk", "don't"), ("jfk", "3.5%"), ("jfk", "!!"), ("nano-0.5s", "abcdefghi")]
    jobs = [AlignmentJob(hidden[name], text) for name, text in texts]
    exact, quick = aligner.pieces(jobs), aligner.pieces(jobs, probabilities=False)
    for job, wanted, got in zip(jobs, exact, quick, strict=True):
        assert [piece[:4] for piece in got or []] == [piece[:4] for piece in wanted or []], job.text
        for ours, theirs in zip(got or [], wanted or [], strict=True):
            if depends_on_score(ours.data):
                assert ours.score == pytest.approx(theirs.score, abs=1e-6)
    assert aligner.words(jobs) == [None if pieces is None else aligner.placer.merge(pieces) for pieces in exact]


def test_golden_target_ids(checkpoint: Checkpoint, golden: Mapping[str, Any]) -> None:
    assert checkpoint.ctc_tokenizer is not None
    for of_input in golden["inputs"].values():
        for text, fixed in of_input["align"].items():
            assert checkpoint.ctc_tokenizer.encode(text) == fixed["target_ids"]


def test_words_are_the_text_and_lie_in_the_segment(
    aligner: CtcAligner, hidden: dict[str, torch.Tensor], golden: Mapping[str, Any]
) -> None:
    decoded = golden["inputs"]["jfk"]["decode"]
    jobs = [AlignmentJob(hidden["jfk"], case["text"]) for case in decoded.values()]
    for job, words in zip(jobs, aligner.words(jobs), strict=True):
        assert words is not None
        assert "".join(word.text for word in words) == job.text
        times = [time for word in words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert times[-1] <= 183 * 0.06


def test_text_that_does_not_fit_has_no_words(aligner: CtcAligner, hidden: dict[str, torch.Tensor]) -> None:
    rows = hidden["nano-0.5s"]  # 8 rows
    jobs = [AlignmentJob(rows, text) for text in ("", "abcdefghi", "aaaaa", "aaaa", "<|30.00|>" * 9)]
    jobs += [AlignmentJob(rows[:0], "a"), AlignmentJob(torch.full_like(rows, torch.nan), "a")]
    assert [words is not None for words in aligner.words(jobs)] == [False, False, False, True, False, False, False]
    assert aligner.words([]) == []


def test_names_of_special_tokens_are_plain_text(checkpoint: Checkpoint) -> None:
    tokenizer = checkpoint.ctc_tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode("<|30.00|>")
    assert b"".join(map(tokenizer.piece, ids)) == b"<|30.00|>"
    assert tokenizer.vocabulary == 2079
    assert tokenizer.piece(2078) == b""


def one(log_probs: NDArray[np.float32], labels: list[int]) -> tuple[list[int], list[int], list[float]] | None:
    """Align one segment; column of a label = the label, 0 the blank."""
    array = np.array(labels, np.int64)
    (found,) = align(log_probs, np.array([0, len(log_probs)]), array, array, np.array([0, len(labels)]))
    return None if found is None else (found.starts.tolist(), found.ends.tolist(), found.scores.tolist())


def brute_force(log_probs: NDArray[np.float32], labels: list[int]) -> float:
    """The best log-probability of any path that collapses to the labels."""
    best = -np.inf
    for path in itertools.product(sorted({0, *labels}), repeat=len(log_probs)):
        collapsed = [label for label, _ in itertools.groupby(path) if label]
        if collapsed == labels:
            best = max(best, sum(float(row[label]) for row, label in zip(log_probs, path, strict=True)))
    return best


def score_of(log_probs: NDArray[np.float32], labels: list[int], starts: list[int], ends: list[int]) -> float:
    path = np.zeros(len(log_probs), np.int64)
    for label, start, end in zip(labels, starts, ends, strict=True):
        path[start:end] = label
    return float(log_probs[np.arange(len(path)), path].sum())


def test_no_path_is_better_than_the_one_found() -> None:
    rng = np.random.default_rng(0)
    impossible = 0
    for _ in range(200):
        rows, count = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        labels = rng.integers(1, 4, count).tolist()
        logits = rng.standard_normal((rows, 4)).astype(np.float32)
        log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        found = one(log_probs, labels)
        best = brute_force(log_probs, labels)
        if found is None:
            impossible += 1
            assert best == -np.inf
            assert rows < rows_needed(labels)
            continue
        starts, ends, scores = found
        assert score_of(log_probs, labels, starts, ends) == pytest.approx(best, abs=1e-5)
        assert scores == pytest.approx(
            [np.exp(log_probs[a:b, label]).max() for label, a, b in zip(labels, starts, ends, strict=True)], abs=1e-6
        )
    assert 20 < impossible < 180


def test_of_equal_paths_the_one_that_stays_wins() -> None:
    flat = np.full((6, 3), -1.0, np.float32)
    # All paths are equal: the last label is where the path ends, and every step back stays as long as it can.
    assert one(flat, [1, 2]) == ([0, 1], [1, 6], pytest.approx([np.exp(-1)] * 2))
    assert one(flat[:1], [1]) == ([0], [1], pytest.approx([np.exp(-1)]))


def test_the_paths_are_torchaudio_s() -> None:
    torchaudio = pytest.importorskip("torchaudio", reason="the peer is not part of the locked environment")
    rng = np.random.default_rng(2)
    for _ in range(300):
        rows, count = int(rng.integers(1, 60)), int(rng.integers(1, 20))
        labels = rng.integers(1, 6, count).tolist()
        log_probs = torch.log_softmax(torch.from_numpy(rng.standard_normal((rows, 6)).astype(np.float32)), -1)
        found = one(log_probs.numpy(), labels)
        if rows < rows_needed(labels):
            assert found is None
            continue
        path, _ = torchaudio.functional.forced_align(log_probs[None], torch.tensor([labels]))
        assert found is not None
        ours = np.zeros(rows, np.int64)
        for label, start, end in zip(labels, found[0], found[1], strict=True):
            ours[start:end] = label
        assert path[0].tolist() == ours.tolist()


def test_impossible_labels_and_rows() -> None:
    certain = np.array([[-0.7, -0.7, -np.inf]] * 4, np.float32)
    assert one(certain, [2]) is None
    assert one(certain, [1]) is not None
    assert one(np.full((3, 3), np.nan, np.float32), [1]) is None
    assert one(np.empty((0, 3), np.float32), [1]) is None


def test_segments_of_a_batch_do_not_touch() -> None:
    rng = np.random.default_rng(1)
    cases = [
        (
            rng.standard_normal((int(rng.integers(0, 40)), 9)).astype(np.float32),
            rng.integers(1, 9, int(rng.integers(0, 8))),
        )
        for _ in range(60)
    ]
    rows = np.concatenate([[0], np.cumsum([len(log_probs) for log_probs, _ in cases])])
    labels = np.concatenate([[0], np.cumsum([len(target) for _, target in cases])])
    every = np.concatenate([target for _, target in cases])
    together = align(np.concatenate([log_probs for log_probs, _ in cases]), rows, every, every, labels)
    for (log_probs, target), found in zip(cases, together, strict=True):
        alone = one(log_probs, target.tolist())
        assert alone == (None if found is None else (found.starts.tolist(), found.ends.tolist(), found.scores.tolist()))


ALPHABETS = (
    "今天天气很好我们去公园吧一三上下不",
    "The quick brown fox's e-mail, isn't",
    "😀👨‍👩‍👧🇨🇳🏽❤️",
    "0123456789.,%$€",
    "e\u0301a\u0308\u0323 \u200b\u200d",
    "שלום עליכם مرحبا بالعالم",
    "สวัสดี 안녕하세요 カタカナひらがなー",
    "。，！？“”（）「」—…·[]<>&#@*/\\\"'",
    " \u3000\t\n",
)


def test_any_text_goes_through(aligner: CtcAligner) -> None:
    """Encode, align, merge, join: 500 random texts of all scripts on random rows."""
    rng = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    jobs = []
    for _ in range(500):
        alphabets = rng.sample(ALPHABETS, rng.randint(1, 4))
        text = "".join(rng.choice(rng.choice(alphabets)) for _ in range(rng.randint(1, 40)))
        jobs.append(AlignmentJob(torch.randn(rng.randint(100, 260), 32, generator=generator), text))
    aligned = aligner.words(jobs)
    for job, words in zip(jobs, aligned, strict=True):
        if words is None:
            continue
        assert "".join(word.text for word in words) == job.text
        times = [time for word in words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert 0 <= times[0] <= times[-1] <= len(job.hidden) * 0.06 + 1e-6
        assert all(word.text.strip() for word in words) or not job.text.strip()
    assert sum(words is not None for words in aligned) > 450


def test_digits_lie_between_their_neighbours(aligner: CtcAligner) -> None:
    (words,) = aligner.words(
        [AlignmentJob(torch.randn(120, 32, generator=torch.Generator().manual_seed(3)), "一共5个，3.5%")]
    )
    assert words is not None
    assert [(word.text, word.interpolated) for word in words] == [
        ("一", False),
        ("共", False),
        ("5", True),
        ("个，", False),
        ("3.5%", True),
    ]
    assert words[2].start == words[1].end
    assert words[2].end == words[3].start
