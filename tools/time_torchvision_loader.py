#!/usr/bin/env python3
"""torchvision's image loader on one worker, against decoding the same files alone.

The Python side of `./run bench data`: the same kind of made-up photographs, the same two transforms, the same yardstick
(libjpeg-turbo decoding the files whole, from memory; here through Pillow). Needs torch, torchvision and Pillow; not part of any build.

    tools/time_torchvision_loader.py [--images 64] [--repeats 5]
"""

import argparse
import io
import pathlib
import random
import statistics
import tempfile
import time

import numpy
import torch
from PIL import Image
from torchvision import datasets, transforms

WIDTH, HEIGHT, WAVES, NOISE, SIDE = 500, 375, 12, 24, 224


def write_photograph(path, seed):
    """Waves of many lengths and noise, at the size and quality that ImageNet's files have."""
    draw = random.Random(seed)
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    channels = []
    speeds = [(draw.uniform(0, 0.5), draw.uniform(0, 0.5)) for _ in range(WAVES)]
    for _ in range(3):
        value = 128 + numpy.random.default_rng(draw.randrange(1 << 30)).integers(0, NOISE, (HEIGHT, WIDTH)).astype(float)
        for across, down in speeds:
            value += 12 * numpy.sin(x * across + y * down + draw.uniform(0, 6))
        channels.append(value.clip(0, 255).astype(numpy.uint8))
    Image.fromarray(numpy.stack(channels, -1)).save(path, quality=90)


def seconds(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ways = {
        "cut for training": transforms.Compose(
            [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
        ),
        "for evaluation": transforms.Compose(
            [transforms.Resize(256), transforms.CenterCrop(SIDE), transforms.PILToTensor()]
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "photographs"
        place.mkdir()
        for i in range(options.images):
            write_photograph(place / f"{i}.jpg", i)
        files = [path.read_bytes() for path in sorted(place.iterdir())]

        def decode():
            for data in files:
                Image.open(io.BytesIO(data)).convert("RGB")

        for name, way in ways.items():
            loader = torch.utils.data.DataLoader(
                datasets.ImageFolder(folder, way), batch_size=32, num_workers=1, persistent_workers=True
            )

            def load():
                for _ in loader:
                    pass

            load()  # starts the worker
            pairs = [(seconds(load), seconds(decode)) for _ in range(options.repeats)]
            ours, peer = (statistics.median(column) / options.images for column in zip(*pairs))
            print(f"torchvision, {name}: {ours * 1e3:.2f} ms an image, decoding alone {peer * 1e3:.2f} ms: {peer / ours:.2f} times")


if __name__ == "__main__":
    main()
