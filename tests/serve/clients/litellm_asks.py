"""What LiteLLM reads of a service, as JSON; run in .venv-clients with address and question."""

import json
import sys

import litellm

address, question, wants_tools = sys.argv[1], sys.argv[2], len(sys.argv) > 3
messages = [{"role": "user", "content": question}]
asked = {
    "model": "openai/heavy",
    "api_base": address,
    "api_key": "none",
    "extra_body": {"heavy": {"seed": 1}},
    "num_retries": 0,
}
answers = {}
if wants_tools:
    function = {"name": "add", "parameters": {"type": "object", "properties": {}}}
    asked["tools"] = [{"type": "function", "function": function}]
    called = litellm.completion(messages=messages, **asked).choices[0]
    answers["calls"] = [call.model_dump() for call in called.message.tool_calls]
    answers["end"] = called.finish_reason
    chunks = [*litellm.completion(messages=messages, stream=True, **asked)]
    streamed = litellm.stream_chunk_builder(chunks).choices[0].message
    answers["streamed_calls"] = [call.model_dump() for call in streamed.tool_calls]
    messages.append(called.message)
    messages += [
        {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": "7"}
        for call in called.message.tool_calls
    ]
whole = litellm.completion(messages=messages, **asked)
chunks = litellm.completion(
    messages=messages, stream=True, stream_options={"include_usage": True}, **asked
)
streamed = litellm.stream_chunk_builder([*chunks], messages=messages)
for name, answer in (("whole", whole), ("streamed", streamed)):
    message = answer.choices[0].message
    answers[name] = {
        "content": message.content,
        "reasoning": getattr(message, "reasoning_content", None),
        "end": answer.choices[0].finish_reason,
        "tokens": [answer.usage.prompt_tokens, answer.usage.completion_tokens],
    }
print(json.dumps(answers))
