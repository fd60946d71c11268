# Runs the MCP project's Python client against a service: over HTTP with both variants of the protocol, and over stdio. Prints the
# results as JSON.
#
# python mcp_client.py http URL | stdio PIRN FILE
import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.types import ElicitResult


async def call(server, mode):
    shown, progress = [], []

    async def person(_, form):
        shown.append(form.model_dump(by_alias=True, exclude_none=True))
        return ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.com"})

    async def heard(done, total, message):
        progress.append(done)

    async with Client(server, mode=mode, elicitation_callback=person) as client:
        tools = {tool.name: tool.model_dump(by_alias=True, exclude_none=True) for tool in (await client.list_tools()).tools}
        called = await client.call_tool("test_elicitation", {"message": "who?"}, progress_callback=heard)
        failed = await client.call_tool("test_error_handling", {})
        refused = await client.call_tool("test_elicitation", {"message": 7})
        try:
            unknown = await client.call_tool("none", {})
        except MCPError as error:
            unknown = error.error.code
        return {
            "version": client.protocol_version,
            "tool": tools["test_elicitation"],
            "called": called.content[0].text,
            "structured": called.structured_content,
            "shown": shown,
            "progress": progress,
            "failed": [failed.is_error, failed.content[0].text],
            "refused": [refused.is_error, refused.content[0].text],
            "unknown": unknown if isinstance(unknown, int) else None,
        }


async def main(kind, *rest):
    heard = []
    for mode in ("legacy", "auto"):
        server = rest[0] if kind == "http" else stdio_client(StdioServerParameters(command=rest[0], args=["mcp", rest[1], "--log", "warn"]))
        heard.append(await call(server, mode))
    print(json.dumps(heard))


asyncio.run(main(*sys.argv[1:]))
