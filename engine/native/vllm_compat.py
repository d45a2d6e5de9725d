"""The one place that knows how vLLM differs between 0.24 and 0.33, and how its engine is set up here.

vLLM reads the environment when it is imported, so nothing here imports it before `configure_environment` was called.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from audio.shared import Waveform
from audio.span import SAMPLE_RATE
from engine.heap import return_large_blocks
from engine.recognition import DecodingOptions

Device = Literal["cpu", "cuda"]

_ALWAYS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in this process, which steps it itself
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process that has used torch's threads hangs
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # it warns a dozen times of what was chosen on purpose
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # its own choice is stdout, which belongs to results
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # vLLM's C++ announces how it binds memory
}
_ON = {
    "cpu": {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the binding is made for worker processes
        # Threads that spin while they wait cost a factor of ten as soon as another process wants the cores.
        "OMP_WAIT_POLICY": "PASSIVE",
        # vLLM compiles one small function even when told to run eagerly; that takes up to 17 s and a C++ compiler.
        "TORCHDYNAMO_DISABLE": "1",
        # Compiled kernels by tensor shape, some 100 KiB each. Segments have any length, so few are wanted again later:
        # of the 1,024 that oneDNN keeps otherwise, nearly all would only take room.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    },
    # Without it small tensor operations on the CPU stall by 10 ms each and starve the GPU.
    "cuda": {"OMP_NUM_THREADS": "1"},
}
_ENGINE_ON: Mapping[str, Mapping[str, Any]] = {
    "cpu": {
        "dtype": "float32",
        "enforce_eager": True,
        "max_num_seqs": 8,
        # Two clips of Whisper a step: more does not go faster on a CPU, and a step must end soon.
        "max_num_batched_tokens": 3072,
        "skip_mm_profiling": True,
    },
    "cuda": {},
}

_BLOCKS_PARTLY_FILLED = 1.2


def configure_environment(device: Device) -> None:
    """Set what vLLM and torch read from the environment, where the user has not, and how the heap keeps tensors.

    To be called before vLLM is imported, and before torch for the threads to wait as they should.
    """
    for name, value in {**_ALWAYS, **_ON[device]}.items():
        os.environ.setdefault(name, value)
    if device == "cpu":
        return_large_blocks()


def build_engine(directory: Path, device: Device, overrides: Mapping[str, Any]) -> Any:
    """An in-process `LLMEngine` for the model in a directory; `overrides` are arguments of vLLM's `EngineArgs`."""
    configure_environment(device)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments = {
        "model": str(directory),
        "limit_mm_per_prompt": {"audio": 1},
        "mm_processor_cache_gb": 0,  # no two recordings are the same
        "enable_prefix_caching": False,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,  # the bar of one file says nothing
        **_ENGINE_ON[device],
        **overrides,
    }
    if device == "cpu":
        arguments.setdefault("kv_cache_memory_bytes", _kv_cache_bytes(directory, int(arguments["max_num_seqs"])))
    # Where there is no Triton, torch mentions it once for every function that it looks at.
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
    with _safe_to_search():
        engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    # vLLM forbids torch.set_num_threads on the CPU, calls it twice a request, and warns each time.
    logging.getLogger("vllm.v1.worker.cpu_worker").addFilter(lambda record: "set_num_threads" not in record.msg)
    return engine


def _kv_cache_bytes(directory: Path, sequences: int) -> int:
    """Room for so many of Whisper's clips at once, in float32; a GiB for models whose configuration looks different."""
    config = json.loads((directory / "config.json").read_text())
    try:
        positions = config["max_source_positions"] + config["max_target_positions"]
        a_position = 2 * 4 * config["decoder_layers"] * config["d_model"]  # a key and a value of each layer
    except KeyError:
        return 1 << 30
    return int(_BLOCKS_PARTLY_FILLED * sequences * positions * a_position)


@contextmanager
def _safe_to_search() -> Iterator[None]:
    """Keep vLLM 0.32's hunt for Triton kernels, through all modules, off an object of llvmlite that it trips over.

    The object answers every attribute, even `__dict__`, with a function of LLVM's library. The hunt also wakes an
    attribute of torch that warns of its age.
    """
    name = "llvmlite.binding.ffi"
    module = sys.modules.pop(name, None)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.distributed.reduce_op.*", FutureWarning)
            yield
    finally:
        if module is not None:
            sys.modules[name] = module


def close_engine(engine: Any) -> None:
    """Free what the engine holds."""
    engine.engine_core.shutdown()


def add_request(engine: Any, request_id: str, prompt: Any, params: Any) -> None:
    """Queue a request.

    Raises:
        ValueError: vLLM refuses the prompt or the parameters; the engine is unharmed.
    """
    renderer: Any = getattr(engine, "renderer", None)
    if hasattr(renderer, "render_cmpl"):
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        (rendered,) = renderer.render_cmpl([parse_model_prompt(engine.model_config, prompt)])
        if "decoder_prompt" in prompt and "prompt_token_ids" in prompt["decoder_prompt"]:
            # vLLM puts the start token in front of a prompt that begins with another, as one with previous text does.
            rendered["decoder_prompt"]["prompt_token_ids"] = prompt["decoder_prompt"]["prompt_token_ids"]
        prompt = rendered
    engine.add_request(request_id, prompt, params)


def tokenizer_of(engine: Any) -> Any:
    """The Hugging Face tokenizer of the model."""
    renderer = getattr(engine, "renderer", None)
    return engine.get_tokenizer() if renderer is None else renderer.tokenizer


def transcription_class(engine: Any) -> Any:
    """The model class, which has vLLM's `SupportsTranscription` interface.

    Raises:
        ValueError: vLLM serves this model, but not for transcription.
    """
    from vllm.model_executor.model_loader import get_model_cls

    model_class = get_model_cls(engine.model_config)
    if not getattr(model_class, "supports_transcription", False):
        raise ValueError(f"{model_class.__name__} is not a transcription model for vLLM")
    return model_class


def generation_prompt(
    model_class: Any, model_config: Any, speech_config: Any, audio: Waveform, language: str | None, o: DecodingOptions
) -> Any:
    """The model's own prompt for a clip: `get_generation_prompt` in either of its forms."""
    values = {
        "audio": audio,
        "stt_config": speech_config,
        "model_config": model_config,
        "language": language,
        "task_type": o.task,
        "request_prompt": o.prompt,
        "to_language": "en" if o.task == "translate" else None,
    }
    wanted = inspect.signature(model_class.get_generation_prompt).parameters
    if "stt_params" in wanted:
        from vllm.config.speech_to_text import SpeechToTextParams

        return model_class.get_generation_prompt(SpeechToTextParams(**values))
    return model_class.get_generation_prompt(**{name: values[name] for name in wanted if name in values})


def speech_config(model_class: Any, model_config: Any) -> Any:
    """vLLM's `SpeechToTextConfig` of a model.

    Raises:
        ValueError: the model wants another sample rate than ours.
    """
    config = model_class.get_speech_to_text_config(model_config, "transcribe")
    if config.sample_rate != SAMPLE_RATE:
        raise ValueError(f"the model wants {config.sample_rate} Hz, waveforms here have {SAMPLE_RATE} Hz")
    return config


def model_runner_of(engine: Any) -> Any | None:
    """The runner that holds the model, None where vLLM keeps it in another process or elsewhere."""
    executor = getattr(engine, "model_executor", None)
    worker = getattr(executor, "driver_worker", None)
    return getattr(getattr(worker, "worker", worker), "model_runner", None)
