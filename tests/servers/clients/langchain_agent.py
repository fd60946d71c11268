"""Sends the questions of stdin (a JSON object) to an agent of LangChain with its summarization middleware.

Argument: the address of a provider with OpenAI's protocol. The provider counts the tokens of the requests."""

import json
import sys

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

asked = json.load(sys.stdin)


@tool
def weather(city: str) -> str:
    """The weather of a city"""
    return asked["result"].replace("CITY", city)


model = ChatOpenAI(model="some-model", base_url=sys.argv[1], api_key="none", max_retries=0)
agent = create_agent(
    model,
    tools=[weather],
    system_prompt=asked["system"],
    middleware=[
        SummarizationMiddleware(model=model, trigger=("tokens", asked["limit"]), keep=("messages", asked["keep"])),
    ],
    checkpointer=InMemorySaver(),
)
config = {"configurable": {"thread_id": "one"}}
for question in asked["questions"]:
    agent.invoke({"messages": [{"role": "user", "content": question}]}, config)
