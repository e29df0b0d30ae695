"""The README of a Space: its front matter, the text of the project's README, and how to train on it."""

from __future__ import annotations

import re

from .card import Card, complete, split

__all__ = ["heading", "readme"]

_BEGIN, _END = "<!-- orsay push: begin -->", "<!-- orsay push: end -->"
_OURS = re.compile(f"\\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\\n*", re.DOTALL)
_HEADING = re.compile(r"^# +(.+?) *#*$", re.MULTILINE)

_PART = """\
## Train on it

This Space speaks the Open Reward Standard at `{url}`. With TRL (`pip install "trl[openreward]"`):

```python
import os
os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = "{url}"
from trl.experimental.openreward import OpenRewardSpec
spec = OpenRewardSpec("{url}")
```

With Orsay (`pip install "orsay[trl]"`), which plays the episodes of a batch at the same time and keeps what
a fault ended out of the loss:

```python
from orsay_trl import EnvironmentSpec, GRPOTrainer
spec = EnvironmentSpec("{url}")
```

Either spec has what a trainer needs: `GRPOTrainer(train_dataset=spec.train_dataset,
environment_factory=spec.environment_factory, reward_funcs=spec.reward_funcs, …)`. To play a task yourself:
`pip install orsay`, then `orsay play {url}`. [Its endpoints]({url}/docs) have a page.

## Access

Everybody whom the hub lets in, as long as the Space has no secret `ORSAY_API_KEYS`. With it, a JSON list such
as `["a-long-key"]`, only who sends one of the keys: `EnvironmentSpec(…, api_key=…)`, `orsay play --api-key …`
or the variable `OPENREWARD_API_KEY` for TRL's `OpenRewardSpec`. Clients of the standard do not log in to the
hub, so a Space that they play has to be public; keys are the way to close it.

A Space sleeps without requests, and the next one wakes it. Sessions do not outlive that, nor
a new push.
"""


def heading(text: str) -> str:
    """The first heading of the highest level; empty when there is none."""
    found = _HEADING.search(split(text)[1])
    return found.group(1) if found else ""


def readme(text: str, card: Card, url: str) -> str:
    """README of a Space from ``text``, the project's; replaces our section of an earlier push."""
    front_matter, body = split(text)
    body = _OURS.sub("\n", body).strip()
    if not heading(body):
        body = f"# {card.title}\n\n{card.description}\n\n{body}".strip()
    part = f"{_BEGIN}\n\n{_PART.format(url=url)}\n{_END}"
    return f"{complete(front_matter, card)}\n{body}\n\n{part}\n"
