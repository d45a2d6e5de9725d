"""Figures of vLLM's engine under vLLM's own names, without its statistics.

With `disable_log_stats` off, vLLM takes notes on every token of every request. What an operator watches is known to its
scheduler anyway, or changes only when a request begins or ends: reading it then costs a step nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_PROMPT, _GENERATED = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
_PREEMPTED = "vllm:num_preemptions_total"


class EngineStats:
    """What the scheduler of an in-process `LLMEngine` knows; nothing where it is out of reach or built otherwise.

    Tokens are counted when their request ends, finished or aborted; vLLM itself counts them as they come.
    """

    def __init__(self, engine: Any) -> None:
        core = getattr(getattr(engine, "engine_core", None), "engine_core", None)
        self._scheduler = getattr(core, "scheduler", None)
        self.counters: dict[str, float] = {}
        """Totals since the engine was built, by name."""
        if self._watch("_free_request", self._ended):
            self.counters |= {_PROMPT: 0.0, _GENERATED: 0.0}
        if self._watch("_preempt_request", self._preempted):
            self.counters |= {_PREEMPTED: 0.0}

    @property
    def gauges(self) -> Mapping[str, float]:
        """How the engine is now, by name; from any thread, since only lengths are read."""
        scheduler: Any = self._scheduler
        if not hasattr(scheduler, "get_request_counts") or not hasattr(scheduler, "kv_cache_manager"):
            return {}
        running, waiting = scheduler.get_request_counts()
        return {
            "vllm:num_requests_running": running,
            "vllm:num_requests_waiting": waiting,
            "vllm:kv_cache_usage_perc": scheduler.kv_cache_manager.usage,
        }

    def _watch(self, name: str, note: Callable[[Any], None]) -> bool:
        """Have a method of the scheduler note its request first; whether there is such a method."""
        method = getattr(self._scheduler, name, None)
        if method is None:
            return False

        def noted(request: Any, *arguments: Any, **options: Any) -> Any:
            note(request)
            return method(request, *arguments, **options)

        setattr(self._scheduler, name, noted)
        return True

    def _ended(self, request: Any) -> None:
        self.counters[_PROMPT] += request.num_prompt_tokens
        self.counters[_GENERATED] += request.num_output_tokens

    def _preempted(self, _: Any) -> None:
        self.counters[_PREEMPTED] += 1
