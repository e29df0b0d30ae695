"""Options of verbs that listen: address, keys, log."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_listening", "add_logging"]


def add_listening(parser: argparse.ArgumentParser, *, config: str) -> None:
    """Add file, address and keys; ``config`` describes what the file holds."""
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=config)
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (8080); 0 takes a free one")
    parser.add_argument(
        "--api-key",
        action="append",
        dest="api_keys",
        metavar="KEY",
        help="accept clients with this key; may be repeated. ORSAY_API_KEYS keeps keys off the process list",
    )
    parser.add_argument(
        "--allow-anonymous", action="store_true", default=None, help="listen beyond loopback without keys"
    )


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Add level and format of the log."""
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], help="(info)")
    parser.add_argument("--log-format", choices=["auto", "console", "json"], help="(auto)")
