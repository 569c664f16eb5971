"""A real MCP server, made with the official Python package.

    python mcp_server.py --port 0       # streamable HTTP: prints its address and serves until its standard input closes
    python mcp_server.py --stdio        # over stdin and stdout

`GET /calls` gives what was called over HTTP so far. Its tools are named so that the scripted model takes the first one
when it is asked for the weather.
"""

import argparse
import os
import socket
import sys
import threading

import uvicorn
from mcp.server import MCPServer
from mcp.types import ToolAnnotations
from starlette.requests import Request
from starlette.responses import JSONResponse

server = MCPServer("weather desk", log_level="ERROR")
calls: list[list[str]] = []


@server.tool(annotations=ToolAnnotations(readOnlyHint=True), structured_output=False)
def get_weather(city: str) -> str:
    """The weather in a city."""
    calls.append(["get_weather", city])
    return f"sunny in {city}"


@server.tool(structured_output=False)
def order_weather(city: str) -> str:
    """Orders other weather for a city."""
    calls.append(["order_weather", city])
    return f"rain for {city}"


@server.tool(structured_output=True)
def forecast(city: str, days: int = 1) -> dict[str, int]:
    """Degrees in a city, day by day."""
    calls.append(["forecast", city])
    return {f"day {day}": 20 + day for day in range(days)}


@server.custom_route("/calls", methods=["GET"])
async def told(_: Request) -> JSONResponse:
    return JSONResponse(calls)


def serve(port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    # The parent holds the other end: when it dies, however it dies, this process ends too.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stdio", action="store_true")
    arguments = parser.parse_args()
    if arguments.stdio:
        server.run("stdio")
    else:
        serve(arguments.port)


if __name__ == "__main__":
    main()
