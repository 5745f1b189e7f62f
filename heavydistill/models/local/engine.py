"""Runs a checkpoint in this process with transformers; meant for the micro and other small models.

Requests are sorted by the length of their prompts and run in batches. Random numbers are a hash of
(request seed, step, token id), so a sample does not depend on the other requests of its batch,
except for rounding. ``keep`` is called when a sample ends, not when its batch does. If a prompt and
its completion do not fit the model's context, the response is an error; nothing is truncated. An
adapter is merged into its base in memory.

Not covered: tensor parallelism, quantization, images. For throughput, serve with vLLM.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.config.models import Sampling
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.hub_files import (
    commit_of,
    folder_digest,
    has_chat_template,
    obstacle,
    unloadable,
)
from heavydistill.models.local.adapter import (
    CONFIG,
    Adapter,
    adapter_of,
    load_adapter,
    merge_adapter,
)
from heavydistill.models.local.architecture import load_model
from heavydistill.models.request import (
    INTERRUPTED,
    Keep,
    Message,
    Request,
    Response,
    discard,
    user_turn,
)
from heavydistill.models.thinking import COMMON_TAGS, Tags, decoded, split_reasoning

if TYPE_CHECKING:
    import torch
    from transformers import LogitsProcessorList, PreTrainedModel
    from transformers import PreTrainedTokenizerBase as Tokenizer

_BATCH_TOKENS = {"cpu": 131_072, "cuda": 262_144}
# Maximum bytes of a batch's keys and values: 35,000 tokens of a 1.7B model in float32.
_BATCH_BYTES = 8 * 10**9
_REPORTED_EVERY_S = 1.0
OnText = Callable[[int, str], bool]
"""Called with the index of a request and its text so far; returns whether to go on with it."""
_CHECKPOINT = "a folder with a transformers checkpoint"

# glibc's mallopt: parameters, and the values that keep buffers of up to 1 GiB.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_BUFFER, _NEVER = 2**30, 2**31 - 1
_GOLDEN = -7046029254386353131  # splitmix64's increments, as signed 64-bit integers
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


class LocalEngine:
    """Generates with a causal language model or an adapter, loaded from a folder or the Hub.

    Args:
        model: Path or Hub id.
        think_tags: Opening and closing tag of the model's thinking, if any.
        batch_tokens: Maximum tokens of a batch: rows times (longest prompt + ``max_tokens``); None
            chooses by the device and its memory.
        on_tokens: Called with the number of tokens written since the last call, about once a second
            and at the end of a batch.

    Raises:
        TeacherError: The checkpoint cannot be loaded or has no chat template; or it is an adapter
            and PEFT is not installed.
    """

    def __init__(
        self,
        model: str,
        think_tags: Tags | None = COMMON_TAGS,
        batch_tokens: int | None = None,
        on_tokens: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        self._name = model
        self.is_drained = False
        self._on_tokens, self._unreported, self._reported_at = on_tokens, 0, time.monotonic()
        self.tokenizer, self.model = _load(model)
        self.think_tags = think_tags
        self.batch_tokens = batch_tokens or _batch_tokens(self.model)
        self.context = int(self.model.config.get_text_config().max_position_embeddings)
        declared = self.model.generation_config.eos_token_id
        ids = [*(declared if isinstance(declared, list) else [declared])]
        self._ends = sorted({i for i in (*ids, self.tokenizer.eos_token_id) if i is not None})

    def generate(
        self, requests: list[Request], keep: Keep = discard, listen: OnText | None = None
    ) -> list[Response]:
        """The responses to all requests, in order.

        ``keep`` is called when each has ended, and ``listen`` every few tokens before its end. A
        request for which ``listen`` returns False is given up, and fails with ``interrupted``.
        """
        prompts = [
            list(
                self.tokenizer.apply_chat_template(
                    _for_template(request.messages), add_generation_prompt=True, return_dict=False
                )
            )
            for request in requests
        ]
        responses: dict[int, Response] = {}

        def done(index: int, response: Response) -> None:
            keep([(requests[index], response)])
            responses[index] = response

        for index, (prompt, request) in enumerate(zip(prompts, requests, strict=True)):
            if len(prompt) + (most := request.sampling.max_tokens) > self.context:
                too_long = Response(
                    finish_reason="error",
                    failure="too_long",
                    error=f"context: {len(prompt)} prompt + {most} completion tokens do not fit "
                    f"the model's {self.context}",
                    prompt_tokens=len(prompt),
                    completion_tokens=0,
                )
                done(index, too_long)
        fitting = [index for index in range(len(requests)) if index not in responses]
        for batch in self._batches(fitting, prompts, requests):
            if not self.is_drained:
                self._run(batch, prompts, requests, done, listen)
        return [responses.get(index, INTERRUPTED) for index in range(len(requests))]

    @property
    def revision(self) -> str:
        """Id of the weights: the commit on the Hub, or a digest of the files in a folder."""
        return local_revision(self._name)

    @functools.cached_property
    def opens_thinking(self) -> bool:
        """Whether the chat template itself opens the thinking of a response."""
        asked = user_turn("?")
        prompt = self.tokenizer.apply_chat_template(
            asked, tokenize=False, add_generation_prompt=True
        )
        return self.think_tags is not None and str(prompt).rstrip().endswith(self.think_tags[0])

    def drain(self) -> None:
        """Stop after the current token; requests that have not ended fail with ``interrupted``."""
        self.is_drained = True

    def close(self) -> None:
        """Free the weights."""
        del self.model

    def _batches(
        self, indices: list[int], prompts: list[list[int]], requests: list[Request]
    ) -> Iterator[list[int]]:
        """Yield batches of request indices: equal sampling, similar length, longest first."""
        groups: dict[Sampling, list[int]] = {}
        for index in indices:
            groups.setdefault(requests[index].sampling, []).append(index)
        for sampling, group in groups.items():
            group.sort(key=lambda i: -len(prompts[i]))
            while group:
                width = len(prompts[group[0]]) + sampling.max_tokens
                size = max(1, self.batch_tokens // width)
                yield group[:size]
                del group[:size]

    def _run(
        self,
        batch: list[int],
        prompts: list[list[int]],
        requests: list[Request],
        done: Callable[[int, Response], None],
        listen: OnText | None,
    ) -> None:
        """Generate a batch; calls ``done`` for each request that was not interrupted."""
        from transformers import GenerationConfig

        from heavydistill.models.local.decoding import can_drop_rows, padded, write

        asked, pad = [requests[i] for i in batch], self.tokenizer.pad_token_id
        sampling, most = asked[0].sampling, asked[0].sampling.max_tokens
        ids, mask = padded([prompts[i] for i in batch], pad, self.model.device)
        started = time.perf_counter()

        def processors_of(rows: Sequence[int]) -> LogitsProcessorList:
            return _processors(sampling, [asked[row].seed for row in rows], ids.shape[1])

        counted = [0] * len(batch)  # tokens of each row

        def on_tokens(row: int, tokens: list[int], has_ended: bool) -> bool:
            written, stops = len(tokens), asked[row].more.get("stop", ())
            is_stopped = any(stop in self._text(tokens) for stop in stops)
            if has_ended or is_stopped:
                seconds = time.perf_counter() - started
                response = self._response(tokens, len(prompts[batch[row]]), seconds, stops)
                written = response.completion_tokens
                done(batch[row], response)
            self._report(written - counted[row])
            counted[row] = written
            if has_ended or is_stopped:
                return has_ended
            return not listen or listen(batch[row], self._text(tokens))

        write(
            self.model.generate,
            ids,
            mask,
            # Greedy decoding of logits with added Gumbel noise is sampling; see _Sampler.
            GenerationConfig(
                do_sample=False, max_new_tokens=most, eos_token_id=self._ends, pad_token_id=pad
            ),
            processors_of,
            in_stretches=can_drop_rows(self.model.config),
            on_tokens=on_tokens,
            goes_on=lambda: not self.is_drained,
        )
        self._report(0, is_over=True)

    def _report(self, tokens: int, is_over: bool = False) -> None:
        """Count written tokens, and report them now and then."""
        self._unreported += tokens
        now = time.monotonic()
        if is_over or now - self._reported_at >= _REPORTED_EVERY_S:
            self._on_tokens(self._unreported)
            self._unreported, self._reported_at = 0, now

    def _response(
        self, row: list[int], prompt_tokens: int, seconds: float, stops: Sequence[str] = ()
    ) -> Response:
        length = next((n for n, token in enumerate(row) if token in self._ends), None)
        written = row if length is None else row[:length]
        text = whole = self._text(written)
        for stop in stops:
            text = text.partition(stop)[0]
        reasoning, answer_text = split_reasoning(text, self.think_tags)
        return Response(
            reasoning=reasoning,
            answer_text=answer_text,
            finish_reason="length" if length is None and text == whole else "stop",
            prompt_tokens=prompt_tokens,
            completion_tokens=len(written) + (length is not None),
            latency_s=seconds,
        )

    def _text(self, tokens: list[int]) -> str:
        return decoded(self.tokenizer, tokens, self.think_tags)


def _batch_tokens(model: PreTrainedModel) -> int:
    """Number of tokens of a batch for the device, limited by the memory for keys and values."""
    text, of_token = model.config.get_text_config(), 0
    # The heads of some models, such as Gemma 4, differ between the layers.
    layers = getattr(text, "per_layer_config", None) or [text] * text.num_hidden_layers
    for layer in (layers[number] for number in range(text.num_hidden_layers)):
        heads = getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads
        size = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
        of_token += 2 * heads * size * model.dtype.itemsize
    return min(_BATCH_TOKENS[model.device.type], int(_BATCH_BYTES // of_token))


def local_revision(model: str) -> str:
    """The revision of a model in a folder or on the Hub; loads no weights.

    The revision of an adapter contains that of its base.

    Raises:
        OSError, ValueError: The folder does not exist, and the Hub cannot be reached or does not
            have the model.
        TeacherError: The configuration of an adapter cannot be used, or its base is missing.
    """
    adapter = adapter_of(model)
    if adapter is None:
        return _revision(model, "config.json")
    of_both = f"{_revision(model, CONFIG)} {base_revision(adapter)}"
    return hashlib.sha256(of_both.encode()).hexdigest()[:16]


def base_revision(adapter: Adapter) -> str:
    """The revision of an adapter's base model. Raises TeacherError if the model cannot be found."""
    try:
        return _revision(adapter.base, "config.json", adapter.revision)
    except (OSError, ValueError) as error:
        raise adapter.lost_base(error) from error


def _revision(model: str, file: str, revision: str | None = None) -> str:
    """The commit of a Hub id that has ``file``; for a folder, a digest."""
    folder = Path(model)
    return folder_digest(folder) if folder.is_dir() else commit_of(model, file, revision)


def load_tokenizer(model: str) -> Tokenizer:
    """Load the tokenizer of a folder or Hub id, with its chat template.

    Raises:
        TeacherError: The tokenizer cannot be loaded, or has no chat template.
    """
    from transformers import AutoTokenizer

    if not Path(model).is_dir():
        obstacle()
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except Exception as error:  # missing or incomplete files: no common exception
        raise unloadable("model", model, error, _CHECKPOINT) from error
    if tokenizer.chat_template is None:
        raise _lacks_template(model)
    return tokenizer


def _for_template(messages: list[Message]) -> list[Message]:
    """The messages with the arguments of tool calls as objects, as chat templates expect them."""
    read = copy.deepcopy(messages)
    for call in chain.from_iterable(message.get("tool_calls", ()) for message in read):
        with contextlib.suppress(ValueError):  # a model wrote them
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return read


def require_template(model: str) -> None:
    """Check that a checkpoint's tokenizer has a chat template; loads no tokenizer.

    Raises:
        TeacherError: The tokenizer has no chat template; or as ``adapter_of`` raises.
    """
    adapter = adapter_of(model)
    tokenizer = adapter.tokenizer if adapter else model
    if Path(tokenizer).is_dir() and not has_chat_template(Path(tokenizer)):
        raise _lacks_template(tokenizer)


def require_roles(model: str, conversations: Iterable[list[Message]]) -> None:
    """Check that a checkpoint's chat template shows what system, user and tools say.

    Raises:
        ConfigError: The template refuses or drops a message.
        TeacherError: The tokenizer cannot be loaded.
    """
    by_roles = {tuple(message["role"] for message in each): each for each in conversations}
    adapter = adapter_of(model)
    tokenizer = load_tokenizer(adapter.tokenizer if adapter else model)
    for roles, messages in by_roles.items():
        if why := refusal_of(tokenizer, messages):
            raise ConfigError(
                f"The chat template of {model} does not take messages of {', '.join(roles)}: {why}",
                "Put what a system message says into the first turn of the user, leave tool calls "
                "out, or give a model whose template takes them.",
            )


def refusal_of(tokenizer: Tokenizer, messages: list[Message]) -> str:
    """Why a chat template does not show what system, user and tools say; empty if it does."""
    try:
        prompt = tokenizer.apply_chat_template(
            _for_template(messages), tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # a template is a program, and may fail in any way
        return f"{type(error).__name__}: {error}"
    lost = {m["role"] for m in messages if m["content"].strip() not in prompt}
    return "it drops one" if lost - {"assistant"} else ""


def _lacks_template(model: str) -> TeacherError:
    """The error if a tokenizer has no chat template."""
    return TeacherError(
        f"The tokenizer of {model!r} has no chat template",
        "Use an instruction-tuned checkpoint, or add a chat template to its tokenizer.",
    )


def _load(model: str) -> tuple[Tokenizer, PreTrainedModel]:
    """Load a checkpoint; returns (tokenizer, model on its device)."""
    import torch
    from transformers import GenerationConfig
    from transformers.utils import logging as transformers_logging

    device = "cuda" if torch.cuda.is_available() else "cpu"
    transformers_logging.disable_progress_bar()  # it would interrupt the run's progress line
    adapter = adapter_of(model)
    tokenizer = load_tokenizer(adapter.tokenizer if adapter else model)
    if device == "cpu":
        _keep_freed_memory()
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if adapter:
        weights = merge_adapter(adapter, load_adapter(adapter, None))
    else:
        try:
            weights = load_model(model, None)
        except Exception as error:  # no model or incomplete weights: no common exception
            raise unloadable("model", model, error, _CHECKPOINT) from error
    # ``generate`` would read unset parameters from the checkpoint, e.g. a repetition penalty.
    weights.generation_config = GenerationConfig(
        eos_token_id=weights.generation_config.eos_token_id
    )
    return tokenizer, weights.to(device).eval()


def _keep_freed_memory() -> None:
    """Make glibc reuse large buffers; by default it maps and unmaps each one anew.

    On a CPU, the kernel took a third of the time of long prompts for that: 67 of 192 processor
    seconds, and 4 of 124 without (135M parameters, 32 prompts of 890 tokens). The process keeps the
    largest amount of memory that it has needed. Elsewhere than on glibc this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BUFFER)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)


def _processors(sampling: Sampling, seeds: list[int], width: int) -> LogitsProcessorList:
    """Create the logits processors for a sampling, in the order of transformers' ``generate``."""
    from transformers import LogitsProcessorList
    from transformers.generation.logits_process import (
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopPLogitsWarper,
    )

    processors = LogitsProcessorList()
    if sampling.repetition_penalty != 1.0:
        processors.append(
            RepetitionPenaltyLogitsProcessor(
                sampling.repetition_penalty, prompt_ignore_length=width
            )
        )
    if sampling.temperature == 0.0:
        return processors
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_p < 1.0:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0.0:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    processors.append(_Sampler(sampling.top_k, warpers, seeds, width))
    return processors


class _Sampler:
    """Warps the logits and adds Gumbel noise, so that the argmax is a sample from their softmax.

    The noise of a token is a hash of (seed of its row, position, token id). With ``top_k``, only
    the ``top_k`` likeliest tokens, and ties with the last of them, are warped and get noise: the
    others cannot be sampled, and a vocabulary is large.
    """

    def __init__(
        self, top_k: int, warpers: LogitsProcessorList, seeds: list[int], width: int
    ) -> None:
        self._top_k, self._warpers, self._seeds, self._width = top_k, warpers, seeds, width

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch

        position, size = input_ids.shape[1] - self._width, scores.shape[1]
        if not 0 < self._top_k < size:
            tokens = torch.arange(size, device=scores.device)
            return self._sampled(input_ids, scores, tokens[None, :], position)
        likeliest, tokens = scores.topk(self._top_k + 1)
        least = likeliest[:, -2:-1]
        if bool((likeliest[:, -1:] == least).any()):  # as many as have the same logit
            likeliest, tokens = scores.topk(int((scores >= least).sum(dim=1).max()))
        likeliest = likeliest.masked_fill(likeliest < least, -torch.inf)
        sampled = self._sampled(input_ids, likeliest, tokens, position)
        return torch.full_like(scores, -torch.inf).scatter(1, tokens, sampled)

    def _sampled(
        self, input_ids: torch.Tensor, scores: torch.Tensor, tokens: torch.Tensor, position: int
    ) -> torch.Tensor:
        """Return the scores of ``tokens`` (rows or 1, tokens) with noise."""
        import torch

        scores = self._warpers(input_ids, scores)
        rows = torch.tensor(self._seeds, dtype=torch.int64, device=scores.device)
        rows = _mix(_mix(rows) + position)
        bits = _mix(rows[:, None] + tokens * _GOLDEN)
        uniform = ((bits >> 11) & ((1 << 53) - 1)).double().add_(0.5).mul_(2.0**-53)
        return scores - torch.log(-torch.log(uniform)).to(scores.dtype)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """The finalizer of splitmix64 on signed 64-bit integers (wrapping, logical shifts)."""
    x = x + _GOLDEN
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _MIX_1
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _MIX_2
    return x ^ ((x >> 31) & ((1 << 33) - 1))
