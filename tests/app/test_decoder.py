from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from app.decoder import DecoderPool
from app.pipeline import EncodedAudio
from audio.decode import DecodeLimits
from audio.errors import AudioTooLong, UndecodableAudio
from audio.shared import SharedWaveform
from tests.encoding import encode

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
async def pool() -> AsyncIterator[DecoderPool]:
    pool = DecoderPool(workers=2, limits=DecodeLimits(max_seconds=60))
    yield pool
    await pool.close()


async def decode(pool: DecoderPool, content: bytes | str) -> np.ndarray:
    with SharedWaveform() as waveform:
        await pool.decode(EncodedAudio(content), waveform, channel="mix")
        return waveform.ref().open().copy()


async def test_bytes_and_paths_give_the_samples(pool: DecoderPool) -> None:
    path = DATA / "jfk.wav"
    expected, _ = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(await decode(pool, path.read_bytes()), expected)
    np.testing.assert_array_equal(await decode(pool, str(path)), expected)


async def test_errors_travel_with_their_code(pool: DecoderPool) -> None:
    with pytest.raises(UndecodableAudio) as caught:
        await decode(pool, b"not a recording at all")
    assert caught.value.code == "invalid_audio"


async def test_limits_hold() -> None:
    pool = DecoderPool(workers=1, limits=DecodeLimits(max_seconds=5))
    with pytest.raises(AudioTooLong):
        await decode(pool, (DATA / "jfk.wav").read_bytes())
    await pool.close()


async def test_more_recordings_than_workers(pool: DecoderPool) -> None:
    names = ["jfk", "goforward", "numbers", "something", "cards-005", "austen-0880"] * 3
    lengths = [len(found) for found in await asyncio.gather(*(decode(pool, str(DATA / f"{n}.wav")) for n in names))]
    assert lengths == [soundfile.info(DATA / f"{name}.wav").frames for name in names]


async def test_a_crash_harms_nobody_else() -> None:
    pool = DecoderPool(workers=1, limits=DecodeLimits())
    path = str(DATA / "jfk.wav")
    await decode(pool, path)
    (worker,) = pool._workers[0]._executor._processes.values()
    assert worker.pid
    os.kill(worker.pid, signal.SIGSTOP)
    victim = asyncio.create_task(decode(pool, path))
    await asyncio.sleep(0.1)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(UndecodableAudio, match="crashed"):
        await victim
    assert len(await decode(pool, path)) == 176_000
    await pool.close()


async def test_a_file_that_claims_a_vast_index_meets_the_memory_limit(pool: DecoderPool) -> None:
    samples, _ = soundfile.read(DATA / "goforward.wav", dtype="int16")
    bomb = bytearray(encode(samples, "ipod", "aac"))
    table = bomb.index(b"stsz") + 8  # after the name, version and flags: size of every sample, number of samples
    struct.pack_into(">II", bomb, table, 1, 100_000_000)
    table = bomb.index(b"stts") + 12
    struct.pack_into(">II", bomb, table, 100_000_000, 1)
    with pytest.raises(UndecodableAudio):
        await decode(pool, bytes(bomb))
    used = [psutil.Process(pid).memory_info().rss for worker in pool._workers for pid in worker._executor._processes]
    assert max(used) < 300e6


async def test_a_cancelled_recording_frees_its_worker(tmp_path: Path) -> None:
    pool = DecoderPool(workers=1, limits=DecodeLimits())
    soundfile.write(tmp_path / "hour.wav", np.zeros(8000 * 3600, np.int16), 8000)
    await decode(pool, str(DATA / "jfk.wav"))
    long = asyncio.create_task(decode(pool, str(tmp_path / "hour.wav")))
    await asyncio.sleep(0.2)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    async with asyncio.timeout(1):
        await decode(pool, str(DATA / "jfk.wav"))
    await pool.close()


_SCRIPT = """
import asyncio, os, sys
from app.decoder import DecoderPool
from app.pipeline import EncodedAudio
from audio.decode import DecodeLimits
from audio.shared import SharedWaveform

pool = DecoderPool(workers=1, limits=DecodeLimits())

async def decode():
    with SharedWaveform() as waveform:
        await pool.decode(EncodedAudio(sys.argv[1]), waveform, channel="mix")
        print(waveform.samples, *pool._workers[0]._executor._processes, flush=True)

asyncio.run(decode())
os.kill(os.getpid(), 9)
"""


def test_a_script_needs_no_guard_and_leaves_nothing_behind_when_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(DATA.parents[1])}
    command = [sys.executable, str(tmp_path / "script.py"), str(DATA / "jfk.wav")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    samples, worker = map(int, done.stdout.split())
    assert samples == 176_000
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(worker).wait(timeout=5)
