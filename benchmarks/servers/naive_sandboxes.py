"""A sandbox service as one would write it in an hour: each request is a docker command. Usage: PORT"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from aiohttp import web


async def docker(*words: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        "docker", *words, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode and words[0] != "exec":
        raise web.HTTPInternalServerError(text=output.decode(errors="replace"))
    return output


async def create(request: web.Request) -> web.Response:
    body = await request.json()
    name = (
        await docker(
            *("run", "--detach", "--init", "--network", body["network"], "--cpus", str(body["cpus"])),
            *("--memory", str(body["memory_bytes"]), body["image"], "sleep", "infinity"),
        )
    ).decode()
    return web.json_response({"sid": name.strip()})


async def run(request: web.Request) -> web.Response:
    body = await request.json()
    return web.Response(body=await docker("exec", body["sid"], "bash", "-c", body["cmd"]))


async def delete(request: web.Request) -> web.Response:
    await docker("rm", "--force", (await request.json())["sid"])
    return web.Response()


async def write(request: web.Request) -> web.Response:
    with tempfile.NamedTemporaryFile() as file:
        await asyncio.to_thread(Path(file.name).write_bytes, await request.read())
        await docker("cp", file.name, f"{request.query['sid']}:{request.query['path']}")
    return web.Response()


async def read(request: web.Request) -> web.Response:
    with tempfile.TemporaryDirectory() as folder:
        await docker("cp", f"{request.query['sid']}:{request.query['path']}", f"{folder}/file")
        return web.Response(body=await asyncio.to_thread(Path(folder, "file").read_bytes))


async def fork(request: web.Request) -> web.Response:
    body = await request.json()
    image = (await docker("commit", body["sid"])).decode().strip()
    made = await docker("run", "--detach", "--init", "--network", body["network"], image, "sleep", "infinity")
    return web.json_response({"sid": made.decode().strip(), "image": image})


async def health(request: web.Request) -> web.Response:
    return web.Response()


app = web.Application(client_max_size=64 << 20)
app.router.add_get("/health", health)
for path, handler in {
    "/create": create,
    "/run": run,
    "/delete": delete,
    "/write": write,
    "/read": read,
    "/fork": fork,
}.items():
    app.router.add_post(path, handler)

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
