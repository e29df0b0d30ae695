"""Train through a rollout function: whole episodes played at the same time, token ids in and token ids out.

Needs `pip install 'orsay[trl,vllm]'`. Where the model is sampled from:

    # vLLM colocated with the trainer, on one GPU
    python examples/rollout_function.py --url http://127.0.0.1:8080 --vllm-mode colocate

    # a vLLM server on another GPU; TRL brings it the weights
    CUDA_VISIBLE_DEVICES=1 VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-4B --port 8000 \\
        --weight-transfer-config '{"backend": "nccl"}' --logprobs-mode processed_logprobs --max-logprobs -1
    CUDA_VISIBLE_DEVICES=0 python examples/rollout_function.py --url http://127.0.0.1:8080 \\
        --vllm-mode server --vllm-server-base-url http://127.0.0.1:8000

    # a vLLM server without CUDA, or out of reach of NCCL; weights go through the folder that it serves
    VLLM_SERVER_DEV_MODE=1 vllm serve /models/mine --served-model-name mine --logprobs-mode processed_logprobs
    python examples/rollout_function.py --url http://127.0.0.1:8080 --model /models/mine \\
        --served-folder /models/mine --vllm-server-base-url http://127.0.0.1:8000

    # no GPU and no vLLM: the trainer's own model samples
    python examples/rollout_function.py --url http://127.0.0.1:8080 --smoke
"""

from __future__ import annotations

import flags
import smoke
from orsay_trl import EnvironmentSpec, vllm_rollout_func
from orsay_trl.rollout.sync import DiskSync
from trl import GRPOConfig, GRPOTrainer


def main() -> None:
    parser = flags.parser(__doc__)
    parser.add_argument(
        "--served-folder", help="what the vLLM server was started on, where TRL cannot send weights"
    )
    parser.add_argument("--max-turns", type=int, default=20, help="of the model, in one rollout")
    args = parser.parse_args()
    spec = EnvironmentSpec(args.url, env_name=args.env_name, num_tasks=args.num_tasks)
    if args.smoke:
        smoke.shrink(args, spec)
    settings = flags.settings(args)
    if args.served_folder:
        settings["use_vllm"] = False
        sync = DiskSync(args.served_folder, args.vllm_server_base_url)
        play = vllm_rollout_func(
            spec, base_url=args.vllm_server_base_url, sync=sync, max_turns=args.max_turns
        )
    else:
        play = vllm_rollout_func(spec, max_turns=args.max_turns)

    trainer = GRPOTrainer(
        model=args.model,
        args=GRPOConfig(**settings),
        train_dataset=spec.rollout_dataset,
        rollout_func=play,
        reward_funcs=spec.reward_funcs,
    )
    trainer.train()
    spec.close()


if __name__ == "__main__":
    main()
