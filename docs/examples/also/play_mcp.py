import asyncio

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    url = "http://127.0.0.1:8080/mcp/reverse?split=train&index=0"
    async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as session:
        print((await session.initialize()).instructions)  # the task
        result = await session.call_tool("submit", {"text": "enots"})
        print(result.content, result.meta)


asyncio.run(main())
