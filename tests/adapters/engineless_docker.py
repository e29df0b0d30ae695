"""A ``docker`` command without an engine: its containers are ports of one server that runs already.

    engineless_docker.py FOLDER UPSTREAM run -d --name NAME -p PORT:8000 IMAGE

``FOLDER`` has a file for each container, with the name of its image.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path


async def publish(port: int, upstream: int) -> None:
    """Pass on what comes to a port, until killed."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    folder, upstream, verb, *arguments = sys.argv[1:]
    if verb == "publish":
        asyncio.run(publish(int(arguments[0]), int(upstream)))
    elif verb == "run":
        port = arguments[arguments.index("-p") + 1].partition(":")[0]
        process = subprocess.Popen(
            [sys.executable, "-I", __file__, folder, upstream, "publish", port],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        Path(folder, str(process.pid)).write_text(arguments[-1])
        sys.stdout.write(f"{process.pid}\n")
    elif verb == "stop":
        os.kill(int(arguments[0]), 9)
    elif verb == "rm":
        Path(folder, arguments[0]).unlink()


if __name__ == "__main__":
    main()
