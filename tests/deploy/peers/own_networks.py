"""Networks of our own beside torchvision's: sound, spectra, transformers, loops, text in images.

Each is small, and written as such networks are in the wild.
"""

import math
import typing

import torch
from torch import nn
from torch.nn import functional as F


class MelSpectrogram(nn.Module):
    """The front end of speech recognizers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("bands", torch.rand(80, 201) * (torch.rand(80, 201) > 0.9))

    def forward(self, sound):
        spectrum = torch.stft(sound, 400, 160, window=self.window, return_complex=True)
        power = spectrum[..., :-1].abs() ** 2
        levels = torch.clamp(self.bands @ power, min=1e-10).log10()
        levels = torch.maximum(levels, levels.max() - 8.0)
        return (levels + 4.0) / 4.0


class Vocoder(nn.Module):
    """Magnitudes and phases to sound."""

    def __init__(self):
        super().__init__()
        self.head = nn.Conv1d(16, 258, 1)
        self.register_buffer("window", torch.hann_window(256))

    def forward(self, frames):
        size, phase = self.head(frames).chunk(2, 1)
        spectrum = torch.exp(size).clip(max=100.0) * (torch.cos(phase) + 1j * torch.sin(phase))
        return torch.istft(spectrum, 256, 64, 256, self.window, center=True)


class FourierOperator(nn.Module):
    """Products with complex weights at the lowest frequencies."""

    def __init__(self, modes=4):
        super().__init__()
        self.modes = modes
        self.low = nn.Parameter(torch.rand(3, 5, modes, modes, dtype=torch.cfloat))
        self.high = nn.Parameter(torch.rand(3, 5, modes, modes, dtype=torch.cfloat))

    def forward(self, x):
        found = torch.fft.rfft2(x)
        made = torch.zeros(x.shape[0], 5, x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat, device=x.device)
        made[:, :, :self.modes, :self.modes] = torch.einsum(
            "bixy,ioxy->boxy", found[:, :, :self.modes, :self.modes], self.low)
        made[:, :, -self.modes:, :self.modes] = torch.einsum(
            "bixy,ioxy->boxy", found[:, :, -self.modes:, :self.modes], self.high)
        return torch.fft.irfft2(made, s=(x.size(-2), x.size(-1)))


class Rotary(nn.Module):
    """Causal attention whose queries and keys are turned as complex numbers."""

    def __init__(self, width=32, heads=2):
        super().__init__()
        self.heads, self.own = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        steps = 1.0 / (10000.0 ** (torch.arange(0, self.own, 2).float() / self.own))
        self.register_buffer("turns", torch.polar(torch.ones(64, self.own // 2), torch.outer(torch.arange(64).float(), steps)))

    def turned(self, x):
        pairs = torch.view_as_complex(x.float().reshape(x.size(0), x.size(1), self.heads, -1, 2))
        return torch.view_as_real(pairs * self.turns[:x.size(1)].view(1, x.size(1), 1, -1)).flatten(3).type_as(x)

    def forward(self, x):
        q, k, v = [each.view(x.size(0), x.size(1), self.heads, self.own) for each in self.qkv(x).chunk(3, -1)]
        made = F.scaled_dot_product_attention(
            self.turned(q).transpose(1, 2), self.turned(k).transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.out(made.transpose(1, 2).flatten(2))


class TextInImages(nn.Module):
    """Convolutions, and recurrent layers along the width."""

    def __init__(self):
        super().__init__()
        self.features, self.pool = nn.Conv2d(1, 8, 3, padding=1), nn.AdaptiveAvgPool2d((1, None))
        self.layers, self.letters = nn.LSTM(8, 6, 2, bidirectional=True), nn.Linear(12, 5)

    def forward(self, images):
        columns = self.pool(F.relu(self.features(images))).squeeze(2).permute(2, 0, 1)
        return F.log_softmax(self.letters(self.layers(columns)[0]), 2)


class DetectionTransformer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features, self.boxes = nn.Conv2d(3, width, 4, 4), nn.Linear(width, 4)
        self.layers = nn.Transformer(width, 2, 1, 1, 32, batch_first=True)
        self.queries = nn.Parameter(torch.rand(5, width))
        self.rows, self.columns = nn.Parameter(torch.rand(40, width // 2)), nn.Parameter(torch.rand(40, width // 2))

    def forward(self, images):
        maps = self.features(images)
        height, width = maps.shape[-2:]
        places = torch.cat([self.columns[:width].unsqueeze(0).repeat(height, 1, 1),
                            self.rows[:height].unsqueeze(1).repeat(1, width, 1)], -1).flatten(0, 1).unsqueeze(0)
        made = self.layers(places + maps.flatten(2).transpose(1, 2), self.queries.unsqueeze(0).repeat(images.size(0), 1, 1))
        return self.boxes(made).sigmoid()


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, activation="gelu", norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.layers(x, mask=torch.full((x.size(1), x.size(1)), float("-inf")).triu(1))


class Experts(nn.Module):
    """Two of four networks for each place."""

    def __init__(self, width=8, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width)) for _ in range(experts)])

    def forward(self, x):
        places = x.reshape(-1, x.size(2))
        weights, chosen = torch.topk(torch.softmax(self.gate(places), -1), 2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        made = torch.zeros_like(places)
        for number, expert in enumerate(self.experts):
            row, column = torch.where(chosen == number)
            made.index_add_(0, row, expert(places[row]) * weights[row, column].unsqueeze(-1))
        return made.view(x.size(0), x.size(1), x.size(2))


class RelativePositions(nn.Module):
    """Attention with biases by buckets of distances."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.biases, self.qkv = heads, nn.Embedding(32, heads), nn.Linear(width, 3 * width)

    def bucket(self, distance):
        half, near = 16, 8
        size = torch.abs(distance)
        far = near + (torch.log(size.float() / near) / math.log(128 / near) * (half - near)).long()
        far = torch.min(far, torch.full_like(far, half - 1))
        return (distance > 0).long() * half + torch.where(size < near, size, far)

    def forward(self, x):
        places = torch.arange(x.size(1))
        biases = self.biases(self.bucket(places[None, :] - places[:, None])).permute(2, 0, 1).unsqueeze(0)
        parts = self.qkv(x).view(x.size(0), x.size(1), 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        return (torch.softmax(q @ k.transpose(-1, -2) + biases, -1) @ v).transpose(1, 2).reshape(x.size(0), x.size(1), -1)


class SelectiveScan(nn.Module):
    """A state space whose steps follow from the input, as a loop over time."""

    def __init__(self, width=8, states=4):
        super().__init__()
        self.decay = nn.Parameter(-torch.rand(width, states))
        self.step, self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, states), nn.Linear(width, states)

    def forward(self, x):
        step, enter, leave = F.softplus(self.step(x)), self.enter(x), self.leave(x)
        state = torch.zeros(x.size(0), self.decay.size(0), self.decay.size(1))
        made: typing.List[torch.Tensor] = []
        for t in range(x.size(1)):
            now = step[:, t].unsqueeze(-1)
            state = torch.exp(now * self.decay) * state + now * enter[:, t].unsqueeze(1) * x[:, t].unsqueeze(-1)
            made.append((state * leave[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(made, 1)


class GreedyDecoder(nn.Module):
    """Words until all sentences have ended."""

    def __init__(self, words=12, width=8):
        super().__init__()
        self.words, self.cell, self.scores = nn.Embedding(words, width), nn.GRUCell(width, width), nn.Linear(width, words)

    def forward(self, state):
        word = torch.zeros(state.size(0), dtype=torch.long)
        done = torch.zeros(state.size(0), dtype=torch.bool)
        made: typing.List[torch.Tensor] = []
        for _ in range(10):
            state = self.cell(self.words(word), state)
            word = torch.where(done, torch.zeros_like(word), self.scores(state).argmax(-1))
            done = done | (word == 3)
            made.append(word)
            if bool(done.all()):
                break
        return torch.stack(made, 1) + 1


class Unpooling(nn.Module):
    """Maxima back at their places."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.unpool = nn.Conv2d(3, 3, 3, padding=1), nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, images):
        maxima, places = self.pool(self.conv(images))
        return self.unpool(maxima, places, output_size=images.shape[-2:])


class Rendering(nn.Module):
    """Colours along rays, by what is left of the light."""

    def forward(self, density):
        opaque = 1 - torch.exp(-torch.relu(density))
        left = torch.cumprod(torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque + 1e-10], -1), -1)[:, :-1]
        return opaque * left
