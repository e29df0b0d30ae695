"""Attacks that look for keys: the session's secrets, and variables that look like keys."""

from __future__ import annotations

import secrets

from .attack import Broken, Lost, attack
from .bench import Bench
from .scripts import find, hidden

_NAMES = ("canary", "openai_api_key", "anthropic_api_key", "hf_token", "chat_api_key")
_NEEDLES = "/tmp/.orsay-needles"


@attack(
    "session-secrets",
    "secrets",
    tried="Sent secrets with a session, and searched files, variables and processes of its sandbox for them.",
    matters="Keys of the trainer, for judges and data, are spent and leaked by whoever reads them.",
    change="Use secrets in the environment's own code; hand them to no sandbox in env, files or commands.",
)
async def session_secrets(bench: Bench) -> str:
    values = {name: f"sk-canary-{secrets.token_hex(12)}" for name in _NAMES}
    async with bench.episode(values) as episode:
        seen = await episode.seen(
            f"""
{hidden(list(values.values()), _NEEDLES)}
{find(f"-type f -size -20000k ! -path {_NEEDLES} -exec grep -lF -f {_NEEDLES} {{}} +")} \
  | head -10 | while read -r f; do say found "$f"; done
for p in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do
  tr '\\000' '\\n' <"$p" 2>/dev/null | grep -qF -f {_NEEDLES} && say found "$p"
done
env | grep -F -f {_NEEDLES} | cut -d= -f1 | while read -r n; do say found "the variable $n"; done
[ -s {_NEEDLES} ] && say end"""
        )
    if seen["found"]:
        raise Broken(f"secrets of the session are in {', '.join(seen['found'])}")
    if not seen["end"]:
        raise Lost("the search did not end")
    return f"{len(values)} secrets are nowhere in the sandbox"


@attack(
    "key-variables",
    "secrets",
    tried="Read the variables of all processes in sight for names that look like keys.",
    matters="A key in a variable is readable by each command of the model.",
    change="Remove it from the image and the sandbox's env; call what needs it from the environment's code.",
)
async def key_variables(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        """
{ env; for p in /proc/[0-9]*/environ; do tr '\\000' '\\n' <"$p"; done; } 2>/dev/null \\
  | grep -iE '^[A-Z_0-9]*(API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)[A-Z_0-9]*=.' \\
  | cut -d= -f1 | sort -u | head -20 | while read -r n; do say variable "$n"; done
for f in "$HOME/.aws/credentials" "$HOME/.ssh/id_rsa" "$HOME/.ssh/id_ed25519" "$HOME/.docker/config.json" \
  "$HOME/.netrc" "$HOME/.config/gcloud" "$HOME/.kube/config" "$HOME/.cache/huggingface/token" \
  /var/run/secrets/kubernetes.io/serviceaccount/token; do [ -e "$f" ] && say file "$f"; done
say end"""
    )
    found = [*(f"the variable {each}" for each in seen["variable"]), *seen["file"]]
    if found:
        raise Broken(f"a command can read {', '.join(found)}")
    if not seen["end"]:
        raise Lost("the search did not end")
    return "no variable or file looks like a key"
