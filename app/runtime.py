"""Puts a pipeline together from settings: which model on which device, with how many processes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from app.decoder import DecoderPool
from app.pipeline import Pipeline
from app.settings import Settings
from app.speakers import SPEAKERS, speaker_factory
from app.stages import RECOGNIZER, VAD, load_vad
from engine.catalog import Catalog, ResolvedModel
from engine.client import DeviceProcess, DeviceThread
from engine.device import Device
from engine.loop import StageFactory
from engine.stage import Stage
from engine.supervisor import RestartPolicy, SupervisedDevice

DeviceKind = Literal["cpu", "cuda"]

_DEFAULT_MODELS: Mapping[DeviceKind, str] = {"cpu": "whisper-base", "cuda": "fun-asr-nano"}


def build_pipeline(settings: Settings, *, in_process: bool = False) -> Pipeline:
    """A pipeline that loads once `ready` is awaited. Weights are found, converted or downloaded here.

    `in_process` runs the device in a thread of this process, which saves a process and shares its fate.

    Raises:
        ModelNotFound: the weights cannot be had; one line that says what to do.
        ValueError: settings that do not go together.
    """
    kind = device_kind(settings)
    segmentation = settings.segmentation()
    model = Catalog(settings.cache_dir).resolve(settings.model or _DEFAULT_MODELS[kind])
    factories: dict[str, StageFactory] = {
        RECOGNIZER: functools.partial(load_recognizer, model, kind, settings.cache_dir, engine_options(settings)),
        VAD: functools.partial(load_vad, kind),
    }
    if (speakers := speaker_factory(settings.speaker_model, kind, settings.cache_dir)) is not None:
        factories[SPEAKERS] = speakers
    device: Device = DeviceThread(factories) if in_process else supervised_device(factories, settings)
    decoder = DecoderPool(workers=settings.decode_workers, limits=settings.decode_limits())
    return Pipeline(decoder=decoder, device=device, segmentation=segmentation)


def supervised_device(factories: Mapping[str, StageFactory], settings: Settings) -> SupervisedDevice:
    """The stages in a process that is started again when it dies."""
    environment: dict[str, str] = {"TINGLU_LOG_LEVEL": settings.log_level, "TINGLU_LOG_FORMAT": settings.log_format}
    if settings.log_format == "json":
        environment["VLLM_CONFIGURE_LOGGING"] = "0"  # its lines come through ours
    policy = RestartPolicy(restarts=settings.engine_restarts, window_seconds=settings.engine_restart_window_seconds)
    return SupervisedDevice(lambda: DeviceProcess(factories, environment=environment), policy)


def device_kind(settings: Settings) -> DeviceKind:
    """Where the models run. `auto` is the GPU if there is one and torch is built for it; torch is not imported."""
    if settings.device != "auto":
        return settings.device
    try:
        built_for_cpu = version("torch").endswith("+cpu")
    except PackageNotFoundError:
        built_for_cpu = True
    return "cpu" if built_for_cpu or not list(Path("/dev").glob("nvidia[0-9]*")) else "cuda"


def engine_options(settings: Settings) -> dict[str, Any]:
    """What the settings say to vLLM's `EngineArgs`; what they leave open is the recogniser's to choose."""
    named = {
        "dtype": None if settings.dtype == "auto" else settings.dtype,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "max_model_len": settings.max_model_len,
        "tensor_parallel_size": settings.tensor_parallel_size if settings.tensor_parallel_size > 1 else None,
    }
    return {name: value for name, value in named.items() if value is not None} | settings.engine_args


def load_recognizer(model: ResolvedModel, kind: DeviceKind, cache_dir: Path, options: Mapping[str, Any]) -> Stage:
    """Runs in the device process. The heavy imports belong here, not at the top; torch's threads read the environment.

    `cache_dir` is where a recogniser keeps what it makes of a model's weights.
    """
    from engine.native.vllm_compat import configure_environment

    configure_environment(kind)
    if model.family == "fun_asr_nano":
        from engine.fun_asr_nano.load import load_fun_asr_nano

        return load_fun_asr_nano(model, kind, cache_dir, options)
    from engine.native.load import load_native

    return load_native(model, kind, options)
