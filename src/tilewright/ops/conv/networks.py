"""The convolutions of real networks, layer by layer, as their publications state them.

A layer is written as channels -> filters @ size, window, stride, groups; padding is what keeps the size (half the
window), unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.dataclass import dataclass
from tilewright.ops.engine import Values

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    channels: int
    filters: int
    size: Sizes
    window: Sizes
    stride: Sizes = ()
    groups: int = 1
    padding: Sizes | None = None  # None: half the window

    def values(self, batch: int) -> Values:
        """The layer as values of the op's options."""
        padding = tuple(extent // 2 for extent in self.window) if self.padding is None else self.padding
        values: dict[str, object] = {
            "batch": batch,
            "channels": self.channels,
            "filters": self.filters,
            "size": _text(self.size),
            "window": _text(self.window),
            "groups": self.groups,
            "stride": _text(self.stride or (1,) * len(self.size)),
            "padding": _text(padding),
        }
        return values


def _text(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


def _flat(channels: int, filters: int, size: int, window: int = 1, stride: int = 1, groups: int = 1) -> Layer:
    """A square layer of two dimensions."""
    return Layer(channels, filters, (size, size), (window, window), (stride, stride), groups)


def _bottlenecks(width: int, groups: int) -> Iterator[Layer]:
    """ResNet-50 and its kin: four stages of 1x1, 3x3, 1x1, where the 3x3 of a stage's first block has the stride."""
    channels, size = 64, 56
    for stage in range(4):
        inner, out, stride = width << stage, 256 << stage, 1 if stage == 0 else 2
        yield _flat(channels, inner, size)
        yield _flat(inner, inner, size, 3, stride, groups)
        yield _flat(channels, out, size, 1, stride)
        size //= stride
        yield _flat(inner, out, size)
        yield _flat(out, inner, size)
        yield _flat(inner, inner, size, 3, 1, groups)
        channels = out


def _resnet50() -> list[Layer]:
    return [_flat(3, 64, 224, 7, 2), *_bottlenecks(64, 1)]


def _resnext50() -> list[Layer]:
    return list(_bottlenecks(128, 32))


def _convnext() -> list[Layer]:
    """ConvNeXt-T: patches, 7x7 depthwise, pointwise four times as wide, 2x2 between stages."""
    layers = [Layer(3, 96, (224, 224), (4, 4), (4, 4), padding=(0, 0))]
    for stage, size in enumerate((56, 28, 14, 7)):
        width = 96 << stage
        layers += [_flat(width, width, size, 7, 1, width), _flat(width, 4 * width, size), _flat(4 * width, width, size)]
        if stage < 3:
            layers.append(Layer(width, 2 * width, (size, size), (2, 2), (2, 2), padding=(0, 0)))
    return layers


# Channels in, expanded, out, size in, window, stride of the inverted residuals.
_MOBILENET_V2 = ((32, 32, 16, 112, 3, 1), (16, 96, 24, 112, 3, 2), (24, 144, 24, 56, 3, 1), (24, 144, 32, 56, 3, 2),
                 (32, 192, 32, 28, 3, 1), (32, 192, 64, 28, 3, 2), (64, 384, 64, 14, 3, 1), (64, 384, 96, 14, 3, 1),
                 (96, 576, 96, 14, 3, 1), (96, 576, 160, 14, 3, 2), (160, 960, 160, 7, 3, 1),
                 (160, 960, 320, 7, 3, 1))  # fmt: skip
_EFFICIENTNET_B0 = ((32, 32, 16, 112, 3, 1), (16, 96, 24, 112, 3, 2), (24, 144, 24, 56, 3, 1), (24, 144, 40, 56, 5, 2),
                    (40, 240, 40, 28, 5, 1), (40, 240, 80, 28, 3, 2), (80, 480, 80, 14, 3, 1), (80, 480, 112, 14, 5, 1),
                    (112, 672, 112, 14, 5, 1), (112, 672, 192, 14, 5, 2), (192, 1152, 192, 7, 5, 1),
                    (192, 1152, 320, 7, 3, 1))  # fmt: skip


def _inverted(blocks: Sequence[tuple[int, int, int, int, int, int]]) -> list[Layer]:
    layers = [_flat(3, 32, 224, 3, 2)]
    for channels, wide, out, size, window, stride in blocks:
        if wide != channels:
            layers.append(_flat(channels, wide, size))
        layers += [_flat(wide, wide, size, window, stride, wide), _flat(wide, out, size // stride)]
    return [*layers, _flat(320, 1280, 7)]


def _unet_2d() -> list[Layer]:
    """Two 3x3 a level, down by halves and up again over the skipped features."""
    layers, channels = [], 1
    for level, width in enumerate((64, 128, 256, 512, 1024)):
        size = 256 >> level
        layers += [_flat(channels, width, size, 3), _flat(width, width, size, 3)]
        if level < 4:
            layers.append(_flat(2 * width, width, size, 3))
        channels = width
    return [*layers, _flat(64, 2, 256)]


def _cube(channels: int, filters: int, size: int, window: int = 3, stride: int = 1) -> Layer:
    return Layer(channels, filters, (size,) * 3, (window,) * 3, (stride,) * 3)


def _unet_3d() -> list[Layer]:
    layers, channels = [], 1
    for level, width in enumerate((32, 64, 128, 256)):
        size = 96 >> level
        layers += [_cube(channels, width, size), _cube(width, 2 * width, size)]
        if level < 3:
            layers += [_cube(6 * width, 2 * width, size), _cube(2 * width, 2 * width, size)]
        channels = 2 * width
    return [*layers, _cube(64, 3, 96, 1)]


def _video() -> list[Layer]:
    """R3D-18, the factored layers of R(2+1)D, and X3D's depthwise ones."""
    layers = [Layer(3, 64, (16, 112, 112), (3, 7, 7), (1, 2, 2))]
    channels, frames, size = 64, 16, 56
    for stage in range(4):
        width, stride = 64 << stage, 1 if stage == 0 else 2
        layers.append(Layer(channels, width, (frames, size, size), (3, 3, 3), (stride,) * 3))
        if stride > 1:
            layers.append(Layer(channels, width, (frames, size, size), (1, 1, 1), (stride,) * 3))
        frames, size, channels = frames // stride, size // stride, width
        layers.append(Layer(width, width, (frames, size, size), (3, 3, 3)))
        middle = width * width * 27 // (9 * width + 3 * width)
        layers.append(Layer(width, middle, (frames, size, size), (1, 3, 3)))
        layers.append(Layer(middle, width, (frames, size, size), (3, 1, 1)))
        wide = 54 << stage
        layers.append(Layer(wide, wide, (16, 56 >> stage, 56 >> stage), (3, 3, 3), groups=wide))
    return layers


def _diffusion() -> list[Layer]:
    """The 3x3 of Stable Diffusion 1.5's UNet at 64x64 latents, and of its decoder."""
    widths = {64: ((4, 320), (320, 320), (960, 320), (640, 320), (320, 4)), 32: ((320, 640), (640, 640), (1920, 640),
              (1280, 640), (960, 640)), 16: ((640, 1280), (1280, 1280), (2560, 1280), (1920, 1280)),
              8: ((1280, 1280), (2560, 1280))}  # fmt: skip
    layers = [_flat(channels, filters, size, 3) for size, pairs in widths.items() for channels, filters in pairs]
    layers += [_flat(width, width, size, 3, 2) for width, size in ((320, 64), (640, 32), (1280, 16))]
    layers += [_flat(960, 320, 64), _flat(1280, 640, 32), _flat(2560, 1280, 16)]
    decoder = ((4, 512, 64), (512, 512, 64), (512, 512, 128), (512, 256, 256), (256, 256, 256), (256, 128, 512),
               (128, 128, 512), (128, 3, 512))  # fmt: skip
    return layers + [_flat(channels, filters, size, 3) for channels, filters, size in decoder]


NETWORKS: dict[str, list[Layer]] = {
    "resnet50": _resnet50(),
    "resnext50": _resnext50(),
    "convnext": _convnext(),
    "mobilenet": _inverted(_MOBILENET_V2),
    "efficientnet": _inverted(_EFFICIENTNET_B0),
    "unet_2d": _unet_2d(),
    "unet_3d": _unet_3d(),
    "video": _video(),
    "diffusion": _diffusion(),
}


def layers(rank: int) -> list[Layer]:
    """Those of all networks of so many spatial dimensions, each once."""
    return list(dict.fromkeys(layer for each in NETWORKS.values() for layer in each if len(layer.size) == rank))
