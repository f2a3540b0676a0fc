# SPDX-License-Identifier: BSD-3-Clause
"""The networks that are trained."""
import torch
from torch import nn

import data

WIDTH, HEADS, BLOCKS = 128, 4, 2  # of the GPT


def mlp():  # 1.86 million weights
    return nn.Sequential(
        nn.Linear(784, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


def mlp_bf16():  # the same weights, and so gradients, as bf16
    return nn.Sequential(Cast(torch.bfloat16), mlp().to(torch.bfloat16), Cast(torch.float32))


def cnn():  # 0.42 million
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def made_up():  # 0.30 million
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        n, length, _ = x.shape
        parts = self.into(self.before(x)).view(n, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.wide(self.between(x))


class Gpt(nn.Module):  # 0.47 million
    """The next byte of a text, from those before."""

    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(data.WINDOW, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))

    def forward(self, x):
        return self.blocks(self.bytes(x) + self.places(torch.arange(x.shape[1])))


class Lstm(nn.Module):  # 2.04 million, most of them in an embedding; a batch uses few of its rows
    """The kind of the next token of a program, from the tokens before."""

    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(data.WORDS, 96), nn.LSTM(96, 128, batch_first=True)
        self.kinds = nn.Linear(128, data.KINDS)

    def forward(self, x):
        return self.kinds(self.lstm(self.words(x))[0])


MAKERS = {"mlp": mlp, "mlp-bf16": mlp_bf16, "cnn": cnn, "gpt": Gpt, "lstm": Lstm, "made-up": made_up}
#: of learning; so that the dense run reaches its level soon
RATES = {"mlp": 0.5, "mlp-bf16": 0.5, "cnn": 0.2, "gpt": 0.002, "lstm": 0.005, "made-up": 0.001}


def optimizer(name, model, rate=None):
    kind = torch.optim.SGD if name in data.DIGITS else torch.optim.Adam
    return kind(model.parameters(), lr=rate or RATES[name])
