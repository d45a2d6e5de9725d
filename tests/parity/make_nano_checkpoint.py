#!/usr/bin/env python3
"""Write a Fun-ASR-Nano checkpoint of random weights in the official directory layout.

    python3 make_nano_checkpoint.py OUT --tokenizer QWEN_TOKENIZER_DIR [--size tiny|full] [--no-ctc] [--seed N]

Same file names, state-dict keys, key order and (with --size full) the same shapes and dtypes as
FunAudioLLM/Fun-ASR-Nano-2512, so a loader, a kernel or a benchmark can be built and measured without the published
weights. What it transcribes is noise.
QWEN_TOKENIZER_DIR holds tokenizer.json, tokenizer_config.json, vocab.json and merges.txt of Qwen3.
"""

import argparse
import base64
import itertools
import json
import math
import pathlib
import shutil

import torch
import yaml

SPECIAL_CTC_TOKENS = 1679  # what the CTC tokenizer appends after its byte-pair ranks
CTC_SHARPNESS = 2.0  # standard deviation of the CTC logits
SIZES = {
    "tiny": {
        "dim": 32,
        "ffn": 96,
        "blocks": 3,
        "tp": 2,
        "adaptor_ffn": 128,
        "ctc_ffn": 96,
        "ctc_blocks": 2,
        "ranks": 400,
        "llm": {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "intermediate_size": 192,
        },
    },
    "full": {
        "dim": 512,
        "ffn": 2048,
        "blocks": 50,
        "tp": 20,
        "adaptor_ffn": 2048,
        "ctc_ffn": 2048,
        "ctc_blocks": 5,
        "ranks": 58836,
        "llm": {
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
        },
    },
}


class Weights(dict):
    """State dict filled with seeded noise; matrices keep activations at unit scale, norms stay near one."""

    def __init__(self, seed: int):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def matrix(self, name: str, *shape: int, bias: bool = True) -> None:
        fan_in = int(torch.tensor(shape[1:]).prod())
        self[name + ".weight"] = torch.randn(*shape, generator=self.generator) * fan_in**-0.5
        if bias:
            self[name + ".bias"] = torch.randn(shape[0], generator=self.generator) * 0.02

    def norm(self, name: str, dim: int, bias: bool = True) -> None:
        self[name + ".weight"] = 1 + 0.1 * torch.randn(dim, generator=self.generator)
        if bias:
            self[name + ".bias"] = 0.1 * torch.randn(dim, generator=self.generator)


def sanm_layer(w: Weights, name: str, dim_in: int, dim: int, ffn: int) -> None:
    w.matrix(f"{name}.self_attn.linear_out", dim, dim)
    w.matrix(f"{name}.self_attn.linear_q_k_v", 3 * dim, dim_in)
    w.matrix(f"{name}.self_attn.fsmn_block", dim, 1, 11, bias=False)
    w.matrix(f"{name}.feed_forward.w_1", ffn, dim)
    w.matrix(f"{name}.feed_forward.w_2", dim, ffn)
    w.norm(f"{name}.norm1", dim_in)
    w.norm(f"{name}.norm2", dim)


def transformer_adaptor(w: Weights, name: str, dim_in: int, ffn: int, dim: int, layers: int) -> None:
    w.matrix(f"{name}.linear1", ffn, dim_in)
    w.matrix(f"{name}.linear2", dim, ffn)
    for i in range(layers):
        for part in "qkv":
            w.matrix(f"{name}.blocks.{i}.self_attn.linear_{part}", dim, dim)
        w.matrix(f"{name}.blocks.{i}.self_attn.linear_out", dim, dim)
        w.matrix(f"{name}.blocks.{i}.feed_forward.w_1", dim // 4, dim)
        w.matrix(f"{name}.blocks.{i}.feed_forward.w_2", dim, dim // 4)
        w.norm(f"{name}.blocks.{i}.norm1", dim)
        w.norm(f"{name}.blocks.{i}.norm2", dim)


def qwen3(w: Weights, c: dict) -> None:
    heads, kv, width, hidden = (c[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"))
    w["llm.model.embed_tokens.weight"] = torch.randn(c["vocab_size"], hidden, generator=w.generator) * 0.05
    for i in range(c["num_hidden_layers"]):
        layer = f"llm.model.layers.{i}"
        w.matrix(f"{layer}.self_attn.q_proj", heads * width, hidden, bias=False)
        w.matrix(f"{layer}.self_attn.k_proj", kv * width, hidden, bias=False)
        w.matrix(f"{layer}.self_attn.v_proj", kv * width, hidden, bias=False)
        w.matrix(f"{layer}.self_attn.o_proj", hidden, heads * width, bias=False)
        w.norm(f"{layer}.self_attn.q_norm", width, bias=False)
        w.norm(f"{layer}.self_attn.k_norm", width, bias=False)
        w.matrix(f"{layer}.mlp.gate_proj", c["intermediate_size"], hidden, bias=False)
        w.matrix(f"{layer}.mlp.up_proj", c["intermediate_size"], hidden, bias=False)
        w.matrix(f"{layer}.mlp.down_proj", hidden, c["intermediate_size"], bias=False)
        w.norm(f"{layer}.input_layernorm", hidden, bias=False)
        w.norm(f"{layer}.post_attention_layernorm", hidden, bias=False)
    w.norm("llm.model.norm", hidden, bias=False)
    w["llm.lm_head.weight"] = w["llm.model.embed_tokens.weight"]


def ctc_ranks(count: int) -> list[bytes]:
    """The 256 bytes, then CJK characters and the byte pairs they are merged from, like those of a byte-level BPE."""
    ranks = [bytes([b]) for b in range(256)]
    seen = set(ranks)
    for point in itertools.chain(range(0x4E00, 0xD800), range(0xE000, 0x30000)):
        if len(ranks) >= count:
            break
        character = chr(point).encode()
        for piece in (character[:2], character):
            if piece not in seen and len(ranks) < count:
                seen.add(piece)
                ranks.append(piece)
    return ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--no-ctc", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--float32", action="store_true", help="keep float32 (exact parity); default bfloat16, as published"
    )
    args = parser.parse_args()
    size = SIZES[args.size]
    qwen_dir = args.out / "Qwen3-0.6B"
    qwen_dir.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        shutil.copy(args.tokenizer / name, qwen_dir / name)

    added = {t["content"]: t["id"] for t in json.loads((qwen_dir / "tokenizer.json").read_text())["added_tokens"]}
    vocab = len(json.loads((qwen_dir / "vocab.json").read_text())) + len(added)
    end_of_text, end_of_turn = added["<|endoftext|>"], added["<|im_end|>"]
    llm = dict(
        architectures=["Qwen3ForCausalLM"],
        model_type="qwen3",
        attention_bias=False,
        attention_dropout=0.0,
        bos_token_id=end_of_text,
        eos_token_id=end_of_turn,
        hidden_act="silu",
        initializer_range=0.02,
        max_position_embeddings=40960,
        max_window_layers=size["llm"]["num_hidden_layers"],
        rms_norm_eps=1e-6,
        rope_scaling=None,
        rope_theta=1000000,
        sliding_window=None,
        tie_word_embeddings=True,
        torch_dtype="float32" if args.float32 else "bfloat16",
        use_cache=True,
        use_sliding_window=False,
        vocab_size=151936 if args.size == "full" else -(-vocab // 64) * 64,
        **size["llm"],
    )
    (qwen_dir / "config.json").write_text(json.dumps(llm, indent=1))
    (qwen_dir / "generation_config.json").write_text(
        json.dumps(
            {
                "bos_token_id": end_of_text,
                "do_sample": True,
                "temperature": 0.6,
                "top_k": 20,
                "top_p": 0.95,
                "eos_token_id": [end_of_turn, end_of_text],
                "pad_token_id": end_of_text,
            }
        )
    )

    ranks = ctc_ranks(size["ranks"])
    (args.out / "multilingual.tiktoken").write_bytes(
        b"".join(base64.b64encode(piece) + b" %d\n" % i for i, piece in enumerate(ranks))
    )
    ctc_vocab = len(ranks) + SPECIAL_CTC_TOKENS

    dim, hidden = size["dim"], llm["hidden_size"]
    config = {
        "model": "FunASRNano",
        "model_conf": {"lsm_weight": 0.1, "length_normalized_loss": True},
        "audio_encoder": "SenseVoiceEncoderSmall",
        "audio_encoder_conf": {
            "output_size": dim,
            "attention_heads": 4,
            "linear_units": size["ffn"],
            "num_blocks": size["blocks"],
            "tp_blocks": size["tp"],
            "dropout_rate": 0.1,
            "positional_dropout_rate": 0.1,
            "attention_dropout_rate": 0.1,
            "input_layer": "pe",
            "pos_enc_class": "SinusoidalPositionEncoder",
            "normalize_before": True,
            "kernel_size": 11,
            "sanm_shfit": 0,
            "selfattention_layer_type": "sanm",
            "freeze": True,
            "freeze_layer_num": -1,
        },
        "llm": "Qwen3-0.6b",
        "llm_conf": {
            "hub": "hf",
            "freeze": True,
            "llm_dtype": "fp32" if args.float32 else "bf16",
            "init_param_path": "Qwen3-0.6B",
            "use_lora": False,
        },
        "audio_adaptor": "Transformer",
        "audio_adaptor_conf": {
            "downsample_rate": 1,
            "use_low_frame_rate": True,
            "ffn_dim": size["adaptor_ffn"],
            "llm_dim": hidden,
            "encoder_dim": dim,
            "n_layer": 2,
            "freeze": True,
        },
        "frontend": "WavFrontend",
        "frontend_conf": {
            "fs": 16000,
            "window": "hamming",
            "n_mels": 80,
            "frame_length": 25,
            "frame_shift": 10,
            "lfr_m": 7,
            "lfr_n": 6,
            "cmvn_file": None,
        },
        "dataset": "FunASR",
        "dataset_conf": {"index_ds": "FunASR", "audio_adaptor_downsample_rate": 1, "audio_encoder_downsample_rate": 6},
        "tokenizer": "HuggingfaceTokenizer",
        "tokenizer_conf": {"init_param_path": "${llm_conf.init_param_path}"},
    }
    weights = Weights(args.seed)
    for i in range(size["blocks"]):
        stack, number = ("encoders0", 0) if i == 0 else ("encoders", i - 1)
        sanm_layer(weights, f"audio_encoder.{stack}.{number}", 560 if i == 0 else dim, dim, size["ffn"])
    for i in range(size["tp"]):
        sanm_layer(weights, f"audio_encoder.tp_encoders.{i}", dim, dim, size["ffn"])
    weights.norm("audio_encoder.after_norm", dim)
    weights.norm("audio_encoder.tp_norm", dim)
    qwen3(weights, llm)
    transformer_adaptor(weights, "audio_adaptor", dim, size["adaptor_ffn"], hidden, 2)
    if not args.no_ctc:
        config |= {
            "ctc_decoder": "Transformer",
            "detach_ctc_decoder": True,
            "ctc_weight": 1.0,
            "ctc_vocab_size": ctc_vocab,
            "ctc_decoder_conf": {
                "downsample_rate": 1,
                "ffn_dim": size["ctc_ffn"],
                "llm_dim": dim,
                "encoder_dim": dim,
                "n_layer": size["ctc_blocks"],
                "freeze": False,
            },
        }
        config["dataset_conf"] |= {
            "ctc_tokenizer": "SenseVoiceTokenizer",
            "ctc_target_normalize": True,
            "ctc_tokenizer_conf": {"vocab_path": None, "is_multilingual": True, "num_languages": 8749},
        }
        transformer_adaptor(weights, "ctc_decoder", dim, size["ctc_ffn"], dim, size["ctc_blocks"])
        weights.matrix("ctc.ctc_lo", ctc_vocab, dim)
        # peaked posteriors, blank best on roughly half of the frames, no special token ever: greedy text and alignments
        # then look like those of a trained head
        weights["ctc.ctc_lo.weight"] *= CTC_SHARPNESS
        weights["ctc.ctc_lo.bias"][len(ranks) : -1] -= 30
        weights["ctc.ctc_lo.bias"][-1] += CTC_SHARPNESS * math.sqrt(2 * math.log(len(ranks)))
    (args.out / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
    (args.out / "configuration.json").write_text(
        json.dumps(
            {
                "framework": "pytorch",
                "task": "auto-speech-recognition",
                "model": {"type": "funasr"},
                "pipeline": {"type": "funasr-pipeline"},
                "model_name_in_hub": {"ms": "", "hf": ""},
                "file_path_metas": {
                    "init_param": "model.pt",
                    "config": "config.yaml",
                    "llm_conf": {"init_param_path": "Qwen3-0.6B"},
                    "tokenizer_conf": {"init_param_path": "Qwen3-0.6B"},
                    "dataset_conf": {"ctc_tokenizer_conf": {"vocab_path": "multilingual.tiktoken"}},
                },
            },
            indent=1,
        )
    )
    dtype = torch.float32 if args.float32 else torch.bfloat16
    torch.save({"state_dict": {k: v.to(dtype).clone() for k, v in weights.items()}}, args.out / "model.pt")
    print(f"{args.out}: {len(weights)} tensors, CTC vocabulary {ctc_vocab}, LLM vocabulary {llm['vocab_size']}")


if __name__ == "__main__":
    main()
