"""The agent of a sandbox: a static program that runs commands there, and its protocol.

``source`` holds its C, ``scripts/agent`` builds it, and the built programs lie here by machine.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import SandboxError

__all__ = ["AGENT_VERSION", "agent_program", "agent_program_path"]

AGENT_VERSION = 2
_PROGRAMS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def agent_program(machine: str) -> bytes:
    """The program for a machine. Raises SandboxError as ``agent_program_path`` does."""
    return agent_program_path(machine).read_bytes()


def agent_program_path(machine: str) -> Path:
    """File of the program for a machine (``x86_64`` or ``aarch64``, also by Docker's names).

    Raises SandboxError for any other.
    """
    name = _PROGRAMS.get(machine)
    if name is None:
        raise SandboxError(f"sandboxes have no agent for {machine}: there is one for x86_64 and aarch64")
    return Path(__file__).resolve().parent / name
