"""ERes2NetV2: Res2Net blocks with attentive fusion of features within and between scales.

Chen et al., "ERes2NetV2: Boosting Short-Duration Speaker Verification Performance with Computational Efficiency"
(Interspeech 2024), in the sizes of the published checkpoint `iic/speech_eres2netv2_sv_zh-cn_16k-common`. Module names
are those of its state dict.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

N_MELS = 80
EMBEDDING_DIM = 192
CHECKPOINT = "pretrained_eres2netv2.ckpt"

_CHANNELS = 64
_STAGES = ((64, 3, 1, False), (128, 4, 2, False), (256, 6, 2, True), (512, 3, 2, True))
"""Planes, blocks, stride of the first block, and whether the halves of a block are fused by attention."""
_EXPANSION = 2
_BASE_WIDTH = 26
_FUSION_RATIO = 4
_CEILING = 20.0
"""Activations inside the blocks are clipped here."""
_VARIANCE_FLOOR = 1e-8


class ERes2NetV2(nn.Module):
    """(B, T, 80) log-mel frames without their mean over time to (B, 192), not normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, _CHANNELS, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(_CHANNELS)
        channels = _CHANNELS
        for number, (planes, blocks, stride, fused) in enumerate(_STAGES, 1):
            layers = [_Block(channels, planes, stride, fused=fused)]
            channels = planes * _EXPANSION
            layers += [_Block(channels, planes, 1, fused=fused) for _ in range(blocks - 1)]
            self.add_module(f"layer{number}", nn.Sequential(*layers))
        self.layer3_ds = nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1, bias=False)
        self.fuse34 = _Fusion(channels)
        self.seg_1 = nn.Linear(2 * channels * N_MELS // 8, EMBEDDING_DIM)

    def forward(self, features: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(features.transpose(1, 2)[:, None])))
        x = self.get_submodule("layer2")(self.get_submodule("layer1")(x))
        third = self.get_submodule("layer3")(x)
        fourth = self.get_submodule("layer4")(third)
        fused = self.fuse34(fourth, self.layer3_ds(third)).flatten(1, 2).float()
        deviation = (fused.var(2) + _VARIANCE_FLOOR).sqrt()
        out: Tensor = self.seg_1(torch.cat([fused.mean(2), deviation], dim=1))
        return out


class _Block(nn.Module):
    """A residual block whose second half is convolved together with what became of the first."""

    def __init__(self, channels: int, planes: int, stride: int, *, fused: bool) -> None:
        super().__init__()
        width = planes * _BASE_WIDTH // 64
        out_channels = planes * _EXPANSION
        self.conv1 = nn.Conv2d(channels, 2 * width, 1, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(2 * width)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.bns = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.fuse_models = nn.ModuleList([_Fusion(width)] if fused else [])
        self.conv3 = nn.Conv2d(2 * width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        first, second = _clip(self.bn1(self.conv1(x))).chunk(2, dim=1)
        first = _clip(self.bns[0](self.convs[0](first)))
        second = self.fuse_models[0](first, second) if len(self.fuse_models) else first + second
        second = _clip(self.bns[1](self.convs[1](second)))
        out = self.bn3(self.conv3(torch.cat([first, second], dim=1)))
        return _clip(out + self.shortcut(x))


class _Fusion(nn.Module):
    """A weighted sum of two maps; the weights come from both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // _FUSION_RATIO
        self.local_att = nn.Sequential(
            nn.Conv2d(2 * channels, inner, 1),
            nn.BatchNorm2d(inner),
            nn.SiLU(),
            nn.Conv2d(inner, channels, 1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        weight = torch.tanh(self.local_att(torch.cat([x, y], dim=1)))
        return x * (1 + weight) + y * (1 - weight)


def _clip(x: Tensor) -> Tensor:
    return F.hardtanh(x, 0.0, _CEILING)
