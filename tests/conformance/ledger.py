"""The ledger: every behaviour we owe, where it is owed from, and in one sentence what it is.

Three kinds of entries: our promises, behaviours of the wire that the conformance suite checks on any server
(``orsay.conformance``), and behaviours that need an environment made for them. ``test_ledger.py`` fails for
an entry without a test and for a test that names no entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orsay.conformance import CHECKS

__all__ = ["ENTRIES", "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """``planned`` marks a known gap: it needs no test yet, and may have none."""

    id: str
    source: str
    sentence: str
    planned: bool = False


def _promise(entry_id: str, sentence: str, *, planned: bool = False) -> Entry:
    return Entry(entry_id, "Orsay promises", sentence, planned)


def _wire(section: str, name: str, sentence: str) -> Entry:
    return Entry(f"P-{section}-{name}", f"ORS wire notes §{section}", sentence)


PROMISES = (
    _promise("D1", "A tool's text arrives byte for byte at every client, whatever white space it holds."),
    _promise("D2", "A call runs at most once; its retry attaches to it, and no other request does."),
    _promise("D3", "A reward that is no finite number is an error that names the tool."),
    _promise("D4", "After finished is true the episode takes no more calls."),
    _promise("D5", "A result is read by task id within its own session, within bounds, and nowhere else."),
    _promise("D6", "With the journal on, no result that a client has seen is lost."),
    _promise(
        "I1", "Synchronous author code of one session never waits for that of another; a full server says so."
    ),
    _promise("I2", "A tool that blocks delays neither /health nor /ping nor other sessions."),
    _promise(
        "I3", "Whatever environment code does ends its call, never the server, never a stream without an end."
    ),
    _promise("I4", "A worker that dies is replaced, and its sessions say why they are gone."),
    _promise("I5", "Every call has a time limit, and at the limit its client is told so."),
    _promise("I6", "Bodies, results, sessions, calls and stored results are bounded by settings."),
    _promise("L1", "/create twice is one session; with another body it is a conflict."),
    _promise("L2", "/delete in any state stops the session and tears it down exactly once."),
    _promise("L3", "A session in use is never expired; idle and lifetime limits are settings."),
    _promise("L4", "A session that is gone answers 410 with the reason, one that never was 404."),
    _promise("L5", "A call whose client does not come back is cancelled, unless its tool says otherwise."),
    _promise(
        "L6", "Shutdown refuses new sessions, lets calls finish, tears down, and says what it waits for."
    ),
    _promise("L7", "After a restart on the same journal replayable sessions go on."),
    _promise(
        "S1", "With API keys every route but /health and /ready needs one; sessions belong to their key."
    ),
    _promise("S2", "Without keys the server listens on loopback only, unless told otherwise."),
    _promise("S3", "Secrets reach no log, error or metric; undecodable X-Secrets answers 400."),
    _promise("S4", "How much of an exception a client reads is one policy for answers and streams."),
    _promise("S5", "Names from outside are looked up in tables, never on objects."),
    _promise("S6", "Tasks by index only is a setting; then no task enters or leaves."),
    _promise("S7", "Sandbox containers are confined and never outlive their session.", planned=True),
    _promise(
        "S8", "Without keys the server answers at its own names only, and to no web page of another machine."
    ),
    _promise(
        "B1", "A bad request gets the right status and a message that helps, and disturbs nothing else."
    ),
    _promise(
        "B2", "A bad command line, setting, module or port ends the start with 2 and a message that helps."
    ),
    _promise("O1", "The log has a line for each session and each fault, and writing it stalls nothing."),
    _promise(
        "A1", "With --reload new sessions run changed code, old ones go on, and broken code changes nothing."
    ),
    _promise("C1", "Unmodified released clients work."),
    _promise("C2", "Classes written for openreward.environments and for ors are hosted unchanged."),
    _promise("C3", "Our client works with released servers."),
    _promise("C4", "A malformed tool is an error where its class is defined."),
    _promise("C5", "A client written from the published text alone works."),
)

SITUATIONS = (
    _wire("3.1", "create-session-json", "Without an Accept for streams /create_session answers with JSON."),
    _wire(
        "3.1", "listing-unsupported", "Tasks that are counted and got but not listed answer 400 on /tasks."
    ),
    _wire("3.1", "listing-avoided", "A class that counts and gets is never asked to list."),
    _wire("4", "metadata-nan", "A NaN in metadata is written as null."),
    _wire("5.2", "error-event", "An exception's text is the data of error, line by line, whatever it holds."),
    _wire("5.4", "comments", "While a tool runs, the stream carries a comment at least every ten seconds."),
    _wire("5.4", "task-id-at-once", "task_id is sent before the tool has finished."),
    _wire(
        "5.4", "one-write", "A call is answered in one write, unless its tool runs long or it waits a second."
    ),
    _wire("6", "loading", "Requests wait a few seconds for environments that load, and then answer 503."),
    _wire("6", "setup-in-background", "/create answers before setup is over."),
    _wire("6", "starting", "Requests that waited too long for setup answer 503, starting, Retry-After."),
    _wire("6", "task-tools-early", "/task_tools does not wait for setup."),
    _wire("6", "setup-failed", "A failed setup answers 500 to everything but /ping, until /delete."),
    _wire("6", "constructor-failed", "A failed constructor answers 500 to /create and leaves no session."),
    _wire("6", "prompt-failed", "A failed prompt answers 500 and leaves the session alone."),
    _wire("6", "delete-during-setup", "/delete during setup answers the waiting requests with 410."),
    _wire("6", "teardown-once", "Teardown runs once, also when it raises."),
    _wire("7", "name-override", "An environment goes by the name that its class gives itself."),
    _wire("7", "split-strings", "A split given by name alone has its name as type, or else validation."),
    _wire("7", "spec-from-client", "A task_spec from the client reaches the environment as it is."),
    _wire("8", "listing-order", "Tools are listed by name, the class first, then its toolsets."),
    _wire("8", "hidden-tool", "A tool with shared=False is not listed, and callable."),
    _wire("8", "task-tools-extra", "list_task_tools adds to /task_tools and not to /tools."),
    _wire("8", "toolset", "A tool of a toolset runs on its own instance, made once for the session."),
    _wire("8", "description", "A tool is described by its docstring, stripped."),
    _wire("9", "same-tool-serial", "Calls of one tool of a session run one after the other."),
    _wire("9", "other-tools-overlap", "Calls of different tools of a session overlap."),
    _wire("9", "concurrent", "Calls of a tool marked concurrent overlap."),
    _wire("9", "exclusive", "A tool marked exclusive runs alone in its session."),
    _wire("9", "wrong-return", "A tool that returns no output ends its stream with an error event."),
    _wire("9", "first-finisher", "Calls still running when the episode finishes answer episode_finished."),
    _wire("9", "disconnect", "A client that goes away does not stop the tool at once, and may come back."),
    _wire("10", "attach-endpoint", "A task id is known at the endpoint it came from only."),
    _wire("10", "score-group-attach", "A group score is read again by its task id."),
    _wire("11", "client-faults", "Released clients tell refusals, failed tools and lost sessions apart."),
    _wire(
        "11", "score-group-raised", "A failed group score ends its stream with an error; the session goes on."
    ),
    _wire("15", "overloaded", "A full server answers 429, Retry-After, and speaks of maximum capacity."),
    _wire("16", "fault-event", "A fault event with its class comes just before error."),
    _wire("16", "fault-header", "Errors that are faults carry their class in a header."),
)

CHECKED = tuple(
    Entry(check.id, check.source, check.sentence) for check in CHECKS if check.group == "standard"
)


def _by_id(entries: Iterable[Entry]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.id in found:
            raise ValueError(f"the ledger has two entries {entry.id}")
        found[entry.id] = entry
    return found


ENTRIES = _by_id((*PROMISES, *SITUATIONS, *CHECKED))
