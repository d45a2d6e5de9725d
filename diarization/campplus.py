"""CAM++: a densely connected time-delay network with context-aware masking.

Wang et al., "CAM++: A Fast and Efficient Network for Speaker Verification Using Context-Aware Masking" (Interspeech
2023), in the sizes of the published checkpoint `iic/speech_campplus_sv_zh-cn_16k-common`. Module names are those of its
state dict.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

N_MELS = 80
EMBEDDING_DIM = 192
CHECKPOINT = "campplus_cn_common.bin"

_HEAD_CHANNELS = 32
_TDNN_CHANNELS = 128
_BOTTLENECK = 128
_GROWTH = 32
_BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of each dense block."""
_SEGMENT_FRAMES = 100
"""Frames that share one local context in the mask: 2 s, since the first layer halves the rate."""


class CampPlus(nn.Module):
    """(B, T, 80) log-mel frames without their mean over time to (B, 192), not normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.head = _Head()
        self.xvector = _XVector()

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.xvector(self.head(features.transpose(1, 2)))
        return out


class _Head(nn.Module):
    """Two-dimensional convolutions that take the 80 mels down to 10 rows of 32 channels."""

    def __init__(self) -> None:
        super().__init__()
        channels = _HEAD_CHANNELS
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.layer1 = nn.Sequential(_ResidualBlock(2), _ResidualBlock(1))
        self.layer2 = nn.Sequential(_ResidualBlock(2), _ResidualBlock(1))
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=(2, 1), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, mels: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(mels[:, None])))
        x = F.relu(self.bn2(self.conv2(self.layer2(self.layer1(x)))))
        return x.flatten(1, 2)


class _ResidualBlock(nn.Module):
    def __init__(self, stride: int) -> None:
        super().__init__()
        channels = _HEAD_CHANNELS
        self.conv1 = nn.Conv2d(channels, channels, 3, stride=(stride, 1), padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, channels, 1, stride=(stride, 1), bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


class _XVector(nn.Sequential):
    """A time-delay layer, three dense blocks that each end at half their width, pooling over time, one projection."""

    def __init__(self) -> None:
        super().__init__()
        first = nn.Conv1d(_HEAD_CHANNELS * N_MELS // 8, _TDNN_CHANNELS, 5, stride=2, padding=2, bias=False)
        self.add_module("tdnn", _ConvNorm(first, _TDNN_CHANNELS))
        channels = _TDNN_CHANNELS
        for number, (layers, dilation) in enumerate(_BLOCKS, 1):
            self.add_module(f"block{number}", _DenseBlock(channels, layers, dilation))
            channels += layers * _GROWTH
            self.add_module(f"transit{number}", _NormConv(channels, channels // 2))
            channels //= 2
        self.add_module("out_nonlinear", _NormRelu(channels))
        self.add_module("stats", _Statistics())
        last = nn.Conv1d(2 * channels, EMBEDDING_DIM, 1, bias=False)
        self.add_module("dense", _ConvNorm(last, EMBEDDING_DIM, affine=False, relu=False))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x.squeeze(2)


class _NormRelu(nn.Module):
    def __init__(self, channels: int, *, affine: bool = True, relu: bool = True) -> None:
        super().__init__()
        self.batchnorm = nn.BatchNorm1d(channels, affine=affine)
        self._relu = relu

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.batchnorm(x)
        return F.relu(out) if self._relu else out


class _ConvNorm(nn.Module):
    def __init__(self, linear: nn.Conv1d, channels: int, *, affine: bool = True, relu: bool = True) -> None:
        super().__init__()
        self.linear = linear
        self.nonlinear = _NormRelu(channels, affine=affine, relu=relu)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.nonlinear(self.linear(x))
        return out


class _NormConv(nn.Module):
    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.nonlinear = _NormRelu(channels)
        self.linear = nn.Conv1d(channels, out_channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(self.nonlinear(x))
        return out


class _DenseBlock(nn.Module):
    """Every layer sees what went into the block and what all layers before it made."""

    def __init__(self, channels: int, layers: int, dilation: int) -> None:
        super().__init__()
        for i in range(layers):
            self.add_module(f"tdnnd{i + 1}", _DenseLayer(channels + i * _GROWTH, dilation))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = torch.cat([x, layer(x)], dim=1)
        return x


class _DenseLayer(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = _NormRelu(channels)
        self.linear1 = nn.Conv1d(channels, _BOTTLENECK, 1, bias=False)
        self.nonlinear2 = _NormRelu(_BOTTLENECK)
        self.cam_layer = _MaskedConv(dilation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cam_layer(self.nonlinear2(self.linear1(self.nonlinear1(x))))
        return out


class _MaskedConv(nn.Module):
    """A convolution whose channels are weighed by a mask of the context: the mean over all time plus the local one."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(_BOTTLENECK, _GROWTH, 3, padding=dilation, dilation=dilation, bias=False)
        self.linear1 = nn.Conv1d(_BOTTLENECK, _BOTTLENECK // 2, 1)
        self.linear2 = nn.Conv1d(_BOTTLENECK // 2, _GROWTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(2, keepdim=True)
        # A window of 1.5 s is one segment: its context is one frame, and so is the mask.
        local = mean
        if x.shape[2] > _SEGMENT_FRAMES:
            local = F.avg_pool1d(x, _SEGMENT_FRAMES, _SEGMENT_FRAMES, ceil_mode=True)
            local = local.repeat_interleave(_SEGMENT_FRAMES, dim=2)[:, :, : x.shape[2]]
        context = F.relu(self.linear1(mean + local))
        out: Tensor = self.linear_local(x) * torch.sigmoid(self.linear2(context))
        return out


class _Statistics(nn.Module):
    """(B, C, T) to (B, 2 C, 1): mean and unbiased standard deviation over time."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return torch.cat([wide.mean(2, keepdim=True), wide.std(2, keepdim=True)], dim=1).to(x.dtype)
