"""Sandboxes of a script."""

import asyncio

from orsay import sandbox


async def main() -> None:
    async with sandbox(memory="256m") as box:
        print((await box.run("python3 -c 'print(6 * 7)'")).output)


asyncio.run(main())

with sandbox() as box:  # in code that is not async
    print(box.run("cat /etc/os-release | head -1").output)
