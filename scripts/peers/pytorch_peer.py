#!/usr/bin/env python3
"""Trains one of HeteroPerf's models in PyTorch and prints its speed as one JSON object.

The models are the ones of workloads/: the same layers, shapes, batch and optimizer. The number of
parameters is printed so that a caller can check that it compares like with like. With several ranks
every one is a process of DistributedDataParallel over gloo, with a batch of its own. In bf16 the
parameters stay float32 and autocast chooses what is computed in bf16, as PyTorch's users do.
Products and convolutions of float32 never use TF32, as ours do not.
"""
import argparse
import dataclasses
import json
import os
import signal
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class GptSize:
    blocks: int
    width: int
    heads: int
    context: int
    vocabulary: int
    micro_batch: int


GPT_SIZES = {
    "nano": GptSize(2, 128, 4, 128, 256, 16),
    "micro": GptSize(4, 256, 4, 128, 512, 16),
    "mini": GptSize(6, 384, 6, 256, 1024, 8),
    "small": GptSize(12, 768, 12, 1024, 50304, 4),
}


class GptBlock(nn.Module):
    """Pre-LayerNorm block: attention, then an MLP of four times the width."""

    def __init__(self, size, causal=True):
        super().__init__()
        self.heads, self.causal = size.heads, causal
        self.norm1 = nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.projection = nn.Linear(size.width, size.width)
        self.norm2 = nn.LayerNorm(size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def attention(self, x):
        batch, context, width = x.shape
        q, k, v = (
            part.view(batch, context, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.projection(mixed.transpose(1, 2).reshape(batch, context, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Learned positions, final LayerNorm, untied head without bias."""

    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(GptBlock(size) for _ in range(size.blocks))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@dataclasses.dataclass(frozen=True)
class Tower:
    blocks: int
    width: int
    heads: int


@dataclasses.dataclass(frozen=True)
class ImageTextSize:
    pixels: int  # height and width of an image
    patch: int
    vision: Tower
    text: Tower
    embedding: int  # features of a pair's vectors; 0: a vision-language model

    def patches(self):
        return (self.pixels // self.patch) ** 2

    def places(self):
        """Tokens in front of a text that stand for its image."""
        return 0 if self.embedding else self.patches()

    def length(self):
        """Tokens of a text: with places for an image a multiple of 4."""
        return CAPTION if self.embedding else (self.places() + CAPTION + 3) // 4 * 4


IMAGE_TEXT_SIZES = {
    "two-tower-nano": ImageTextSize(36, 12, Tower(2, 128, 4), Tower(2, 128, 4), 64),
    "two-tower-micro": ImageTextSize(36, 12, Tower(4, 256, 4), Tower(4, 192, 4), 128),
    "vlm-nano": ImageTextSize(36, 12, Tower(2, 128, 4), Tower(2, 128, 4), 0),
    "vlm-micro": ImageTextSize(36, 12, Tower(4, 192, 4), Tower(4, 256, 4), 0),
}
WORDS, CAPTION = 32, 16  # vocabulary; tokens of the longest caption


def normal_weights(module):
    for parameter in module.parameters():
        if parameter.dim() >= 2:
            nn.init.normal_(parameter, std=0.02)


class VisionTower(nn.Module):
    """Patches by one convolution, perhaps a class token, learned positions, a norm, blocks."""

    def __init__(self, size, class_token):
        super().__init__()
        width = size.vision.width
        self.patches = nn.Conv2d(3, width, size.patch, size.patch, bias=False)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        rows = size.patches() + (1 if class_token else 0)
        self.positions = nn.Parameter(torch.zeros(rows, width))
        self.norm = nn.LayerNorm(width)
        blocks = range(size.vision.blocks)
        self.blocks = nn.ModuleList(GptBlock(size.vision, causal=False) for _ in blocks)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        x = self.norm(x + self.positions)
        for block in self.blocks:
            x = block(x)
        return x


class TwoTowers(nn.Module):
    """CLIP's form; the text is read at its first last token."""

    def __init__(self, size):
        super().__init__()
        self.vision = VisionTower(size, class_token=True)
        self.vision_norm = nn.LayerNorm(size.vision.width)
        self.vision_projection = nn.Linear(size.vision.width, size.embedding, bias=False)
        self.tokens = nn.Embedding(WORDS, size.text.width)
        self.positions = nn.Parameter(torch.zeros(CAPTION, size.text.width))
        self.blocks = nn.ModuleList(GptBlock(size.text) for _ in range(size.text.blocks))
        self.norm = nn.LayerNorm(size.text.width)
        self.projection = nn.Linear(size.text.width, size.embedding, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(2.659))
        normal_weights(self)

    def forward(self, images, ids):
        v = self.vision_projection(self.vision_norm(self.vision(images)[:, 0]))
        x = self.tokens(ids) + self.positions
        for block in self.blocks:
            x = block(x)
        ends = (ids == WORDS - 1).int().argmax(dim=1)
        t = self.projection(self.norm(x)[torch.arange(len(ids)), ends])
        return self.log_scale.exp() * F.normalize(v, dim=1) @ F.normalize(t, dim=1).T


class VisionLanguage(nn.Module):
    """LLaVA's form: projected patches take the first places of a decoder's text."""

    def __init__(self, size):
        super().__init__()
        width, self.places = size.text.width, size.places()
        self.vision = VisionTower(size, class_token=False)
        self.vision_norm = nn.LayerNorm(size.vision.width)
        self.up, self.down = nn.Linear(size.vision.width, width), nn.Linear(width, width)
        self.tokens = nn.Embedding(WORDS, width)
        self.positions = nn.Parameter(torch.zeros(size.length(), width))
        self.blocks = nn.ModuleList(GptBlock(size.text) for _ in range(size.text.blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        normal_weights(self)

    def forward(self, images, ids):
        rows = self.down(F.gelu(self.up(self.vision_norm(self.vision(images)))))
        x = torch.cat([rows, self.tokens(ids[:, self.places :])], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions; a strided one projects its input with a 1x1 convolution."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut = None
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x):
        kept = x if self.shortcut is None else self.shortcut(x)
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)) + kept, inplace=True)


class BottleneckBlock(nn.Module):
    """1x1, 3x3 with the stride, and 1x1 to four times the channels (v1.5)."""

    def __init__(self, channels_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(4 * width)
        self.shortcut = None
        if stride != 1 or channels_in != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, 4 * width, 1, stride, bias=False),
                nn.BatchNorm2d(4 * width),
            )

    def forward(self, x):
        kept = x if self.shortcut is None else self.shortcut(x)
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = F.relu(self.norm2(self.conv2(x)), inplace=True)
        return F.relu(self.norm3(self.conv3(x)) + kept, inplace=True)


@dataclasses.dataclass(frozen=True)
class ResNetForm:
    block: type
    blocks: tuple  # of each of the four widths
    expansion: int
    pixels: int  # height and width of an image


RESNETS = {
    "resnet18": ResNetForm(ResidualBlock, (2, 2, 2, 2), 1, 32),
    "resnet50": ResNetForm(BottleneckBlock, (3, 4, 6, 3), 4, 64),
}


class ResNet(nn.Module):
    """The usual stem (7x7 stride 2, then max-pool) at every image size."""

    def __init__(self, form, classes):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        layers, channels = [], 64
        for index, width in enumerate((64, 128, 256, 512)):
            for block in range(form.blocks[index]):
                stride = 2 if index > 0 and block == 0 else 1
                layers.append(form.block(channels, width, stride))
                channels = width * form.expansion
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        return self.head(self.layers(self.stem(x)).mean((2, 3)))


class GptTask:
    unit = "token/s"

    def __init__(self, name, batch):
        size = GPT_SIZES[name]
        self.batch = batch or size.micro_batch
        self.items_per_step = self.batch * size.context
        self.model = Gpt(size)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )
        shape = (8, self.batch, size.context + 1)
        self.pool = torch.randint(size.vocabulary, shape)

    def loss(self, step):
        ids = self.pool[step % len(self.pool)]
        logits = self.model(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


class ImageTextTask:
    """Random images, and captions of a few random words before their last tokens."""

    unit = "pair/s"

    def __init__(self, name, batch):
        size = IMAGE_TEXT_SIZES[name]
        self.contrasts, places = size.embedding > 0, size.places()
        behind = size.length() - places
        self.batch = batch or (64 if self.contrasts else 32)
        self.items_per_step = self.batch
        self.model = TwoTowers(size) if self.contrasts else VisionLanguage(size)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=5e-4, betas=(0.9, 0.999), weight_decay=0.01, fused=True
        )
        self.images = torch.randn(8, self.batch, 3, size.pixels, size.pixels)
        texts = torch.randint(1, WORDS - 2, (8, self.batch, behind))
        lengths = torch.randint(2, CAPTION, (8, self.batch, 1))
        places_of = torch.arange(behind)
        texts = torch.where(places_of < lengths, texts, WORDS - 1)
        image = torch.full((8, self.batch, places), WORDS - 2)
        self.texts = torch.cat([image, texts], dim=2)
        targets = torch.where(places_of < lengths, texts.roll(-1, 2), -1)
        self.targets = torch.cat([torch.full_like(image, -1), targets], dim=2)

    def loss(self, step):
        index = step % len(self.images)
        scores = self.model(self.images[index], self.texts[index])
        if self.contrasts:
            own = torch.arange(len(scores))
            return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
        return F.cross_entropy(
            scores.flatten(0, 1), self.targets[index].flatten(), ignore_index=-1
        )


class ImageTask:
    unit = "image/s"

    def __init__(self, name, batch, channels_last):
        form = RESNETS[name]
        self.batch = batch or 32
        self.items_per_step = self.batch
        self.model = ResNet(form, classes=10)
        self.images = torch.randn(8, self.batch, 3, form.pixels, form.pixels)
        self.labels = torch.randint(10, (8, self.batch))
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.images = torch.stack(
                [b.contiguous(memory_format=torch.channels_last) for b in self.images]
            )
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, fused=True
        )

    def loss(self, step):
        index = step % len(self.images)
        return F.cross_entropy(self.model(self.images[index]), self.labels[index])


def train_step(task, step, arguments):
    """Reads the loss, so the step has ended on the device too."""
    task.optimizer.zero_grad(set_to_none=True)
    in_bf16 = arguments.precision == "bf16"
    with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=in_bf16):
        loss = task.loss(step)
    loss.backward()
    if arguments.clip_norm > 0:
        nn.utils.clip_grad_norm_(task.model.parameters(), arguments.clip_norm)
    task.optimizer.step()
    return loss.item()


def measure(task, arguments, rank):
    """Steps for about arguments.duration after the warm-up; returns (ends of steps, last loss).

    The first of the ends, in seconds of the monotonic clock, is that of the warm-up. Ranks must
    make equally many steps, so several agree on their number after the warm-up.
    """
    warm_up = arguments.warmup_steps
    ends = [time.monotonic()]
    for step in range(warm_up):
        loss = train_step(task, step, arguments)
        ends.append(time.monotonic())
    steps = None
    if arguments.ranks > 1:
        usual_s = statistics.median(b - a for a, b in zip(ends, ends[1:]))
        wanted = torch.tensor(max(1, round(arguments.duration / usual_s)))
        dist.broadcast(wanted, 0)
        steps = int(wanted)
    if arguments.pause and rank == 0:
        os.killpg(0, signal.SIGSTOP)
    ends = [time.monotonic()]
    while len(ends) <= steps if steps else ends[-1] - ends[0] < arguments.duration:
        loss = train_step(task, warm_up + len(ends) - 1, arguments)
        ends.append(time.monotonic())
    return ends, loss


def peak_memory_bytes(device):
    """Of a GPU what its allocator gave out, of a CPU all of the process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=[*GPT_SIZES, *RESNETS, *IMAGE_TEXT_SIZES])
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's default")
    parser.add_argument("--ranks", type=int, default=1, help="processes, each with a batch")
    parser.add_argument("--compile", action="store_true", help="torch.compile (inductor)")
    parser.add_argument("--batch", type=int, default=0, help="samples per step; 0: the model's")
    parser.add_argument("--duration", type=float, default=10.0, help="measured seconds")
    parser.add_argument("--warmup-steps", type=int, default=5)
    parser.add_argument(
        "--pause", action="store_true", help="stop the process group (SIGSTOP) after the warm-up"
    )
    parser.add_argument("--clip-norm", type=float, default=0.0, help="0: no gradient clipping")
    parser.add_argument("--channels-last", action="store_true", help="images in NHWC memory")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def make_task(arguments):
    if arguments.model in RESNETS:
        task = ImageTask(arguments.model, arguments.batch, arguments.channels_last)
    elif arguments.model in IMAGE_TEXT_SIZES:
        task = ImageTextTask(arguments.model, arguments.batch)
    else:
        task = GptTask(arguments.model, arguments.batch)
    task.parameters = sum(p.numel() for p in task.model.parameters())
    if arguments.ranks > 1:
        task.model = nn.parallel.DistributedDataParallel(task.model)
    if arguments.compile:
        task.model = torch.compile(task.model)
    return task


def train(rank, arguments, port):
    torch.set_default_device(arguments.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(arguments.seed)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.ranks > 1:
        # One core after the other, as our ranks are bound.
        cores = sorted(os.sched_getaffinity(0))
        each = max(1, len(cores) // arguments.ranks)
        os.sched_setaffinity(0, cores[rank * each :][:each] or cores)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    task = make_task(arguments)
    ends, loss = measure(task, arguments, rank)
    if rank == 0:
        report(arguments, task, ends, loss)
    if arguments.ranks > 1:
        dist.destroy_process_group()


def report(arguments, task, ends, loss):
    times_s = [b - a for a, b in zip(ends, ends[1:])]
    window_s, items_per_step = ends[-1] - ends[0], task.items_per_step * arguments.ranks
    json.dump(
        {
            "peer": "pytorch",
            "version": torch.__version__,
            "model": arguments.model,
            "compiled": arguments.compile,
            "parameters": task.parameters,
            "device": arguments.device,
            "precision": arguments.precision,
            "ranks": arguments.ranks,
            "threads": torch.get_num_threads(),
            "batch": task.batch * arguments.ranks,
            "steps": len(times_s),
            "window_s": window_s,
            "items_per_step": items_per_step,
            "step_ends_s": ends,
            "throughput": {"value": len(times_s) * items_per_step / window_s, "unit": task.unit},
            "step_time_s": {"median": statistics.median(times_s), "min": min(times_s)},
            "loss": loss,
            "peak_memory_bytes": peak_memory_bytes(arguments.device),
        },
        sys.stdout,
    )
    print(flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    arguments = parse_arguments()
    if arguments.ranks == 1:
        train(0, arguments, None)
    else:
        torch.multiprocessing.spawn(train, (arguments, free_port()), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
