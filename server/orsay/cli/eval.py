"""``orsay eval``: evaluate a model or a policy on tasks of a server, or compare two evaluations."""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..settings import named_variable
from .terminal import console, echo_error

if TYPE_CHECKING:
    from orsay_eval import EvaluationReport, Policy

__all__ = ["add_parser", "run"]

_EXAMPLES = """examples:
  orsay eval http://127.0.0.1:8080 --env guessenvironment -n 100 -k 4 \\
      --model Qwen/Qwen3-8B --base-url http://127.0.0.1:8000/v1 --concurrency 64
  orsay eval http://127.0.0.1:8080 --policy random                    a random policy as the baseline
  orsay eval http://127.0.0.1:8080 --policy solver.py:solve           a scripted policy
  orsay eval http://127.0.0.1:8080 --model gpt-5-mini --tasks 0-9,40  OpenAI, with OPENAI_API_KEY
  orsay eval http://127.0.0.1:8080 --model M --base-url URL --output m.json --resume
  orsay eval --compare before.json after.json                         is the difference noise?

Ctrl-C keeps the episodes played so far; the same command with --output FILE --resume continues, and repeats
episodes lost to faults. Faults are counted apart and never scored.

exit status: 0 done, 1 the evaluation failed, too many episodes were lost, or --min-reward or --not-worse
failed, 2 the command line is wrong, 130 Ctrl-C"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDER = "evaluations"
_OPENAI_KEY = "OPENAI_API_KEY"


class _Wrong(Exception):
    """Contradictory or invalid arguments; exit code 2."""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "eval",
        help="evaluate a model on tasks of a server, or compare two evaluations",
        description="Evaluate a model, or a policy, on tasks of any ORS server.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="the environment server")
    _add_tasks(parser.add_argument_group("tasks"))
    _add_players(parser.add_argument_group("policy"))
    _add_scores(parser.add_argument_group("scoring"))
    _add_course(parser.add_argument_group("execution"))
    _add_results(parser.add_argument_group("results"))
    parser.set_defaults(run=run)


def _add_tasks(group: Any) -> None:
    group.add_argument("--env", metavar="NAME", help="which environment (the server's first)")
    group.add_argument("--split", default="test", metavar="SPLIT", help="which split (test)")
    group.add_argument("-n", type=int, metavar="N", help="number of tasks, from the start (all)")
    group.add_argument("--tasks", metavar="LIST", help="which tasks: 0,4,7 or 0-9 or 0:10")
    group.add_argument("--sample", type=int, metavar="SEED", help="draw the N tasks at random, by a seed")
    group.add_argument("-k", type=int, default=1, metavar="K", help="attempts at each task (1)")


def _add_players(group: Any) -> None:
    group.add_argument("--model", metavar="M", help="name of the model at the endpoint")
    group.add_argument("--base-url", metavar="URL", help="OpenAI-compatible endpoint (OpenAI's own)")
    group.add_argument(
        "--api-key-variable",
        metavar="NAME",
        help=f"variable with the endpoint's key ({_OPENAI_KEY}, for OpenAI's own endpoint only)",
    )
    group.add_argument("--policy", metavar="P", help="random, module:function or file.py:function; no model")
    group.add_argument("--system", metavar="TEXT", help="a system message; @FILE reads it from a file")
    group.add_argument("--temperature", type=float, metavar="T", help="(the endpoint's default)")
    group.add_argument("--top-p", type=float, metavar="P", help="(the endpoint's default)")
    group.add_argument(
        "--max-tokens", type=int, metavar="N", help="tokens per answer (the endpoint's default)"
    )
    group.add_argument("--max-turns", type=int, default=64, metavar="N", help="answers per episode (64)")
    group.add_argument(
        "--seed", type=int, metavar="N", help="seed of the policy; also sent to a model's endpoint"
    )
    group.add_argument(
        "--nudge",
        type=int,
        default=0,
        metavar="N",
        help="ask a model that calls no tool to continue, up to N times (0)",
    )
    group.add_argument("--no-images", action="store_true", help="send the names of images only")
    group.add_argument(
        "--no-reasoning", action="store_true", help="do not send earlier reasoning of the model again"
    )
    group.add_argument("--extra-body", metavar="JSON", help="more fields for each request to the endpoint")


def _add_scores(group: Any) -> None:
    group.add_argument(
        "--reward",
        default="last",
        metavar="R",
        help="reward of an episode: last, sum, max, mean or discounted:GAMMA (last)",
    )
    group.add_argument(
        "--unscored", default="0", metavar="X", help="reward of an episode without one, or none (0)"
    )
    group.add_argument(
        "--success", type=float, default=1.0, metavar="X", help="solved from this reward on (1)"
    )
    group.add_argument("--min-reward", type=float, metavar="X", help="fail below this mean reward")


def _add_course(group: Any) -> None:
    group.add_argument("--concurrency", type=int, default=32, metavar="N", help="episodes at a time (32)")
    group.add_argument("--retries", type=int, default=2, metavar="N", help="fresh sessions after faults (2)")
    group.add_argument("--call-timeout", type=float, metavar="S", help="limit for one call (the server's)")
    group.add_argument(
        "--model-timeout", type=float, default=600.0, metavar="S", help="limit for an answer (600)"
    )
    group.add_argument(
        "--model-tries", type=int, default=10, metavar="N", help="requests to a failing endpoint (10)"
    )
    group.add_argument("--api-key", metavar="KEY", help="API key of the environment server")
    group.add_argument(
        "--secret",
        action="append",
        default=[],
        dest="secrets",
        metavar="NAME",
        help="give sessions the variable NAME as a secret; may be repeated",
    )


def _add_results(group: Any) -> None:
    group.add_argument("--output", type=Path, metavar="FILE", help=f"report as JSON ({_FOLDER}/NAME.json)")
    group.add_argument("--resume", action="store_true", help="play the tasks that the output lacks")
    group.add_argument("--name", metavar="NAME", help="name of the report (split, policy and time)")
    group.add_argument("--run", dest="run_label", metavar="RUN", help="label of the sessions (the name)")
    group.add_argument(
        "--step", type=int, metavar="N", help="label of the sessions: the step of that training run"
    )
    group.add_argument(
        "--no-journal", action="store_true", help="do not send the report to the server's journal"
    )
    group.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="test whether two reports differ by more than noise"
    )
    group.add_argument("--not-worse", action="store_true", help="with --compare: fail if B is worse than A")


def run(args: argparse.Namespace) -> int:
    """Exit status of the verb."""
    from orsay_eval.errors import EvaluationError

    try:
        return _compare(args) if args.compare else _evaluate(args)
    except (_Wrong, ValueError) as exc:
        return _failed(exc, 2)
    except EvaluationError as exc:
        return _failed(exc, 1)


def _compare(args: argparse.Namespace) -> int:
    from orsay_eval import compare, load_report

    from .eval_progress import show_comparison

    if args.url is not None:
        raise _Wrong("--compare takes two reports and no server")
    found = compare(*map(load_report, args.compare))
    show_comparison(console(), found)
    worse = not found.reward.is_noise and found.reward.difference < 0
    return int(args.not_worse and worse)


def _evaluate(args: argparse.Namespace) -> int:
    from orsay_client import ConnectionLost, OrsayClientError, Unauthorized
    from orsay_eval import Evaluation, EvaluationStopped, evaluate
    from orsay_eval.definition import parse_tasks
    from orsay_eval.reward import parse_reward

    from .eval_progress import ProgressBar, show_report

    if args.url is None:
        raise _Wrong("name the server: orsay eval http://127.0.0.1:8080 --model M --base-url URL")
    if args.tasks is not None and args.n is not None:
        raise _Wrong("use -n or --tasks, not both")
    if args.not_worse:
        raise _Wrong("--not-worse belongs to --compare")
    if args.resume and args.output is None:
        raise _Wrong("--resume continues a report: name it with --output FILE")
    if args.step is not None and args.run_label is None:
        raise _Wrong("--step belongs to a run: name it with --run RUN")
    evaluation = Evaluation(
        environment=args.env,
        split=args.split,
        tasks=parse_tasks(args.tasks) if args.tasks is not None else args.n,
        k=args.k,
        sample=args.sample,
        reward=parse_reward(args.reward),
        unscored=_unscored(args.unscored),
        success=args.success,
        max_turns=args.max_turns,
        nudges=args.nudge,
        images=not args.no_images,
        call_timeout_s=args.call_timeout,
        retries=args.retries,
    )
    policy = _policy(args)
    secrets = dict(map(_secret, args.secrets))
    name = args.name or _own_name(args, policy)
    output = args.output or Path(_FOLDER) / f"{_slug(name)}.json"
    bar = ProgressBar(console(stderr=True))
    try:
        with bar:
            report = evaluate(
                evaluation,
                args.url,
                policy,
                name=None if args.resume and args.name is None else name,
                run=args.run_label or (None if args.resume else name),
                step=args.step,
                concurrency=args.concurrency,
                api_key=args.api_key,
                secrets=secrets or None,
                output=output,
                resume=args.resume,
                journal=not args.no_journal,
                on_progress=bar.progress,
                on_note=bar.note,
            )
    except KeyboardInterrupt:
        return _interrupted(bar, output)
    except EvaluationStopped as exc:
        show_report(console(), exc.report, output)
        return _failed(f"{exc}. Go on with --output {output} --resume", 1)
    except Unauthorized as exc:
        return _failed(f"{exc.message}; give the server's key with --api-key", 1)
    except ConnectionLost as exc:
        return _failed(f"cannot reach {args.url}: {exc.message}; is the server running?", 1)
    except OrsayClientError as exc:
        return _failed(exc.message, 1)
    except OSError as exc:
        return _failed(f"cannot write {exc.filename or output}: {exc.strerror}", 1)
    show_report(console(), report, output)
    return _status(report, args.min_reward)


def _status(report: EvaluationReport, least: float | None) -> int:
    mean = report.summary.mean_reward
    if mean is None:
        return _failed("every episode was lost to faults; see the server's log", 1)
    if least is not None and mean.mean < least:
        return _failed(f"the mean reward {mean.mean:.4g} is below {least:g}", 1)
    return 0


def _interrupted(bar: Any, output: Path) -> int:
    kept = f"{bar.done} of {bar.planned} episodes are in {output}; the same command with --output "
    text = f"{kept}{output} --resume continues it" if bar.done else "interrupted before an episode ended"
    return _failed(text, 130)


def _policy(args: argparse.Namespace) -> Policy:
    from orsay_eval import ChatModel, RandomPolicy
    from orsay_eval.scripted import load_policy

    if (args.model is None) == (args.policy is None):
        raise _Wrong("name the player: --model M --base-url URL, or --policy random or module:function")
    if args.policy == "random":
        return RandomPolicy(args.seed or 0)
    if args.policy is not None:
        return load_policy(args.policy, seed=args.seed or 0)
    return ChatModel(
        args.model,
        base_url=args.base_url,
        api_key=_key(args),
        temperature=args.temperature,
        top_p=args.top_p,
        max_tokens=args.max_tokens,
        seed=args.seed,
        system=_text(args.system),
        extra_body=_object(args.extra_body),
        timeout_s=args.model_timeout,
        tries=args.model_tries,
        keep_reasoning=not args.no_reasoning,
    )


def _key(args: argparse.Namespace) -> str | None:
    name = args.api_key_variable or (_OPENAI_KEY if args.base_url is None else None)
    if name is None:
        return None
    found = named_variable(name)
    if not found:
        raise _Wrong(f"the variable {name} is not set; it is to have the key of the model's endpoint")
    return found


def _secret(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not _NAME.fullmatch(name):
        raise _Wrong(f"{name!r} is no name of a variable")
    found = value if given else named_variable(name)
    if found is None:
        raise _Wrong(f"the variable {name} is not set; it is to be handed over as a secret")
    return name, found


def _unscored(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise _Wrong(f"--unscored takes a number or none, not {text!r}") from None


def _text(given: str | None) -> str | None:
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except OSError as exc:
        raise _Wrong(f"cannot read {given[1:]}: {exc.strerror}") from exc


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise _Wrong(f"--extra-body is no JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise _Wrong("--extra-body takes a JSON object, such as '{\"top_k\": 20}'")
    return found


def _own_name(args: argparse.Namespace, policy: Policy) -> str:
    parts = [args.env or "", args.split, policy.name, time.strftime("%Y%m%d-%H%M%S", time.gmtime())]
    return "-".join(_slug(part) for part in parts if part)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "evaluation"


def _failed(what: object, code: int) -> int:
    echo_error("eval", str(what))
    return code
