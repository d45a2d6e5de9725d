#!/usr/bin/env python3
"""Write speaker-embedding checkpoints of random weights in the official directory layouts.

    python3 make_speaker_checkpoint.py OUT [--seed N]

creates OUT/campplus (CAM++, 937 tensors, 28 MB) and OUT/eres2netv2 (ERes2NetV2, 557 tensors, 72 MB): same file names,
tensor names, shapes and dtypes as the published checkpoints. Weights come from torch's CPU generator in a fixed order,
so every machine writes the same tensors; fingerprint() gives the sha256 that golden/speaker.json records.
"""

import argparse
import hashlib
import json
import math
import pathlib

import torch

CAMPPLUS_CONFIG = """model: CAMPPlus
model_conf:
  feat_dim: 80
  embedding_size: 192
  growth_rate: 32
  bn_size: 4
  init_channels: 128
  config_str: batchnorm-relu
  memory_efficient: true
  output_level: segment
frontend: WavFrontend
frontend_conf:
  fs: 16000
"""


class Weights(dict):
    def __init__(self, seed: int):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def conv(self, name: str, *shape: int, bias: bool = False) -> None:
        self[name + ".weight"] = torch.randn(*shape, generator=self.generator) * math.sqrt(1.5 / math.prod(shape[1:]))
        if bias:
            self[name + ".bias"] = torch.randn(shape[0], generator=self.generator) * 0.05

    def batch_norm(self, name: str, channels: int, affine: bool = True) -> None:
        def uniform(low, high):
            return low + (high - low) * torch.rand(channels, generator=self.generator)

        if affine:
            self[name + ".weight"] = uniform(0.7, 1.3)
            self[name + ".bias"] = 0.1 * torch.randn(channels, generator=self.generator)
        self[name + ".running_mean"] = 0.1 * torch.randn(channels, generator=self.generator)
        self[name + ".running_var"] = uniform(0.7, 1.3)
        self[name + ".num_batches_tracked"] = torch.tensor(0)


def campplus(seed: int) -> Weights:
    w = Weights(seed)
    w.conv("head.conv1", 32, 1, 3, 3)
    w.batch_norm("head.bn1", 32)
    for layer in (1, 2):
        for block in (0, 1):
            name = f"head.layer{layer}.{block}"
            for i in (1, 2):
                w.conv(f"{name}.conv{i}", 32, 32, 3, 3)
                w.batch_norm(f"{name}.bn{i}", 32)
            if block == 0:
                w.conv(f"{name}.shortcut.0", 32, 32, 1, 1)
                w.batch_norm(f"{name}.shortcut.1", 32)
    w.conv("head.conv2", 32, 32, 3, 3)
    w.batch_norm("head.bn2", 32)
    w.conv("xvector.tdnn.linear", 128, 320, 5)
    w.batch_norm("xvector.tdnn.nonlinear.batchnorm", 128)
    channels = 128
    for number, layers in enumerate((12, 24, 16), 1):
        for i in range(1, layers + 1):
            name = f"xvector.block{number}.tdnnd{i}"
            w.batch_norm(f"{name}.nonlinear1.batchnorm", channels)
            w.conv(f"{name}.linear1", 128, channels, 1)
            w.batch_norm(f"{name}.nonlinear2.batchnorm", 128)
            w.conv(f"{name}.cam_layer.linear_local", 32, 128, 3)
            w.conv(f"{name}.cam_layer.linear1", 64, 128, 1, bias=True)
            w.conv(f"{name}.cam_layer.linear2", 32, 64, 1, bias=True)
            channels += 32
        w.batch_norm(f"xvector.transit{number}.nonlinear.batchnorm", channels)
        w.conv(f"xvector.transit{number}.linear", channels // 2, channels, 1)
        channels //= 2
    w.batch_norm("xvector.out_nonlinear.batchnorm", channels)
    w.conv("xvector.dense.linear", 192, 2 * channels, 1)
    w.batch_norm("xvector.dense.nonlinear.batchnorm", 192, affine=False)
    return w


def fusion(w: Weights, name: str, channels: int, ratio: int = 4) -> None:
    w.conv(f"{name}.local_att.0", channels // ratio, 2 * channels, 1, 1, bias=True)
    w.batch_norm(f"{name}.local_att.1", channels // ratio)
    w.conv(f"{name}.local_att.3", channels, channels // ratio, 1, 1, bias=True)
    w.batch_norm(f"{name}.local_att.4", channels)


def eres2netv2(seed: int) -> Weights:
    w = Weights(seed)
    w.conv("conv1", 64, 1, 3, 3)
    w.batch_norm("bn1", 64)
    channels = 64
    for layer, (planes, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        width = planes * 26 // 64
        for block in range(blocks):
            name = f"layer{layer}.{block}"
            w.conv(f"{name}.conv1", 2 * width, channels, 1, 1)
            w.batch_norm(f"{name}.bn1", 2 * width)
            for half in (0, 1):
                w.conv(f"{name}.convs.{half}", width, width, 3, 3)
                w.batch_norm(f"{name}.bns.{half}", width)
            if layer > 2:
                fusion(w, f"{name}.fuse_models.0", width)
            w.conv(f"{name}.conv3", 2 * planes, 2 * width, 1, 1)
            w.batch_norm(f"{name}.bn3", 2 * planes)
            if block == 0:
                w.conv(f"{name}.shortcut.0", 2 * planes, channels, 1, 1)
                w.batch_norm(f"{name}.shortcut.1", 2 * planes)
            channels = 2 * planes
    w.conv("layer3_ds", 1024, 512, 3, 3)
    fusion(w, "fuse34", 1024)
    w.conv("seg_1", 192, 20480, bias=True)
    return w


def fingerprint(weights: dict) -> str:
    """sha256 over the tensors in name order: name, dtype, shape, little-endian bytes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].contiguous()
        digest.update(f"{name} {str(tensor.dtype).split('.')[-1]} {list(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def write(out: pathlib.Path, seed: int = 0) -> dict[str, str]:
    for name in ("campplus", "eres2netv2"):
        (out / name).mkdir(parents=True, exist_ok=True)
    first, second = campplus(seed), eres2netv2(seed + 1)
    (out / "campplus/config.yaml").write_text(CAMPPLUS_CONFIG)
    (out / "campplus/configuration.json").write_text(
        json.dumps(
            {
                "framework": "pytorch",
                "task": "speaker-verification",
                "model": {"type": "cam++"},
                "pipeline": {"type": "funasr-pipeline"},
                "file_path_metas": {"init_param": "campplus_cn_common.bin", "config": "config.yaml"},
            },
            indent=1,
        )
    )
    torch.save(dict(first), out / "campplus/campplus_cn_common.bin")
    (out / "eres2netv2/configuration.json").write_text(
        json.dumps(
            {
                "framework": "pytorch",
                "task": "speaker-verification",
                "model": {"type": "eres2netv2-sv", "pretrained_model": "pretrained_eres2netv2.ckpt"},
                "pipeline": {"type": "speaker-verification-eres2netv2"},
            },
            indent=1,
        )
    )
    torch.save(dict(second), out / "eres2netv2/pretrained_eres2netv2.ckpt")
    return {"campplus": fingerprint(first), "eres2netv2": fingerprint(second)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name, value in write(args.out, args.seed).items():
        print(f"{args.out / name}: sha256 {value}")
