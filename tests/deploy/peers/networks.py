"""torchvision's networks, and some of our own, with random weights, small enough to be run on two cores.

Each one is named, made, and described: its input's shape, the axes that are of any size, and other shapes to try.
"""

import dataclasses
import re
import typing

import own_networks as own
import torch
import torchvision
from torch import nn

IMAGE_AXES = {0: "batch", 2: "height", 3: "width"}
BATCH_AXIS = {0: "batch"}


@dataclasses.dataclass
class Network:
    name: str
    make: typing.Callable[[], nn.Module]
    shapes: list  # of the inputs at the example's size
    axes: dict  # of every input: number to name
    others: list  # lists of shapes
    ways: tuple = ("traced", "scripted")
    is_detector: bool = False


class Detector(nn.Module):
    """One image in, tensors out; scripted detectors give their losses as well."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> typing.Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if torch.jit.is_scripting():
            found = self.model([image])[1][0]
        else:
            found = self.model([image])[0]
        return found["boxes"], found["scores"], found["labels"]


class Segmentation(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images)["out"]


class Flow(nn.Module):
    """The last of the flows that an optical flow network gives."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.model(first, second)[-1]


def image_network(name, make, size=96, others=((2, 128, 96), (3, 96, 160)), axes=None):
    shapes = [[[n, 3, h, w]] for n, h, w in others]
    return Network(name, make, [[1, 3, size, size]], axes or IMAGE_AXES, shapes)


def of_fixed_size(name, make, size=64):
    return image_network(name, make, size, ((3, size, size),), BATCH_AXIS)


def classifiers():
    models = torchvision.models

    def by_name(name, **options):
        return image_network(name, lambda: getattr(models, name)(weights=None, **options))

    return [
        by_name("alexnet"),
        by_name("vgg11_bn"),
        by_name("resnet18"),
        by_name("resnet50"),
        by_name("resnext50_32x4d"),
        by_name("wide_resnet50_2"),
        by_name("densenet121"),
        by_name("googlenet", aux_logits=False, init_weights=False),
        by_name("inception_v3", aux_logits=False, init_weights=False),
        by_name("mobilenet_v2"),
        by_name("mobilenet_v3_small"),
        by_name("mobilenet_v3_large"),
        by_name("mnasnet0_5"),
        by_name("shufflenet_v2_x0_5"),
        by_name("squeezenet1_1"),
        by_name("efficientnet_b0"),
        by_name("efficientnet_v2_s"),
        by_name("regnet_x_400mf"),
        by_name("regnet_y_400mf"),
        by_name("convnext_tiny"),
        of_fixed_size(
            "vit",
            lambda: models.VisionTransformer(
                image_size=64, patch_size=16, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128),
        ),
        image_network("swin_t", lambda: models.SwinTransformer([4, 4], 48, [2, 2], [3, 6], [7, 7])),
        image_network(
            "swin_v2_t",
            lambda: models.SwinTransformer(
                [4, 4], 48, [2, 2], [3, 6], [8, 8], block=models.swin_transformer.SwinTransformerBlockV2,
                downsample_layer=models.swin_transformer.PatchMergingV2),
        ),
        of_fixed_size(
            "maxvit",
            lambda: models.MaxVit(
                input_size=(64, 64), stem_channels=16, partition_size=4, block_channels=[16, 32], block_layers=[1, 1],
                head_dim=8, stochastic_depth_prob=0.1),
        ),
    ]


def segmenters():
    models = torchvision.models.segmentation

    def by_name(name):
        return image_network(name, lambda: Segmentation(getattr(models, name)(weights=None, weights_backbone=None)))

    return [by_name("fcn_resnet50"), by_name("deeplabv3_mobilenet_v3_large"), by_name("lraspp_mobilenet_v3_large")]


def videos():
    models = torchvision.models.video

    def video(name, make, size=(4, 48, 48), others=((2, 4, 48, 48), (1, 8, 64, 48))):
        axes = {0: "batch", 2: "frames", 3: "height", 4: "width"}
        return Network(name, make, [[1, 3, *size]], axes, [[[n, 3, t, h, w]] for n, t, h, w in others])

    return [
        video("r3d_18", lambda: models.r3d_18(weights=None)),
        video("mc3_18", lambda: models.mc3_18(weights=None)),
        video("r2plus1d_18", lambda: models.r2plus1d_18(weights=None)),
        video("s3d", lambda: models.s3d(weights=None), (16, 224, 224), ((1, 16, 224, 256),)),
        Network(
            "mvit",
            lambda: models.MViT(
                (32, 32), 4,
                [models.mvit.MSBlockConfig(1, 16, 32, [], [3, 3, 3], [], [1, 2, 2]),
                 models.mvit.MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1])],
                residual_pool=False, residual_with_cls_embed=True, rel_pos_embed=False, proj_after_attn=False),
            [[1, 3, 4, 32, 32]], BATCH_AXIS, [[[3, 3, 4, 32, 32]]]),
        video(
            "swin3d",
            lambda: models.SwinTransformer3d([2, 4, 4], 24, [2, 2], [3, 6], [2, 4, 4]),
            (4, 64, 64), ((2, 4, 64, 64), (1, 6, 96, 64))),
    ]


def detectors():
    models = torchvision.models.detection
    small = {"weights": None, "weights_backbone": None, "num_classes": 7}

    def detector(name, **options):
        def make():
            return Detector(getattr(models, name)(**small, **options))

        return Network(name, make, [[3, 128, 160]], {1: "height", 2: "width"}, [[[3, 160, 128]], [[3, 200, 176]]],
                       is_detector=True)

    two_stages = {"box_score_thresh": 0.0, "box_detections_per_img": 8, "min_size": 128, "max_size": 256}
    one_stage = {"score_thresh": 0.0, "detections_per_img": 8}
    resized = {"min_size": 128, "max_size": 256}
    return [
        detector("fasterrcnn_mobilenet_v3_large_320_fpn", **two_stages),
        detector("fasterrcnn_resnet50_fpn", **two_stages),
        detector("maskrcnn_resnet50_fpn", **two_stages),
        detector("keypointrcnn_resnet50_fpn", **two_stages),
        detector("retinanet_resnet50_fpn", **one_stage, **resized),
        detector("fcos_resnet50_fpn", **one_stage, **resized),
        detector("ssd300_vgg16", **one_stage),
        detector("ssdlite320_mobilenet_v3_large", **one_stage),
    ]


def flows():
    shapes = [[1, 3, 128, 128], [1, 3, 128, 128]]
    others = [[[2, 3, 128, 160], [2, 3, 128, 160]]]
    return [
        Network("raft_small", lambda: Flow(torchvision.models.optical_flow.raft_small(weights=None)), shapes, IMAGE_AXES,
                others, ("traced",))  # it unpacks what it loops over, which TorchScript does not
    ]


def others():
    sequence, image = {0: "batch", 1: "time"}, IMAGE_AXES

    def network(name, make, shape, other, axes, ways=("traced", "scripted")):
        return Network(name, make, [shape], axes, [[other]], ways)

    return [
        network("mel_spectrogram", own.MelSpectrogram, [1, 8000], [2, 12100], sequence),
        network("vocoder", own.Vocoder, [1, 16, 20], [2, 16, 33], {0: "batch", 2: "time"}),
        network("fourier_operator", own.FourierOperator, [1, 3, 16, 16], [2, 3, 24, 18], image),
        network("rotary_attention", own.Rotary, [1, 10, 32], [3, 20, 32], sequence, ("traced",)),
        network("text_in_images", own.TextInImages, [1, 1, 8, 20], [2, 1, 8, 33], {0: "batch", 3: "width"}, ("traced",)),
        network("detection_transformer", own.DetectionTransformer, [1, 3, 32, 32], [2, 3, 48, 32], image),
        network("encoder", own.Encoder, [1, 6, 16], [2, 9, 16], sequence),
        network("experts", own.Experts, [1, 6, 8], [2, 9, 8], sequence),
        network("relative_positions", own.RelativePositions, [1, 6, 32], [2, 40, 32], sequence),
        network("selective_scan", own.SelectiveScan, [1, 6, 8], [2, 9, 8], sequence, ("scripted",)),
        network("greedy_decoder", own.GreedyDecoder, [1, 8], [3, 8], BATCH_AXIS, ("scripted",)),
        network("unpooling", own.Unpooling, [1, 3, 16, 16], [2, 3, 32, 24], image, ("traced",)),
        network("rendering", own.Rendering, [4, 32], [9, 64], {0: "rays", 1: "steps"}),
    ]


LOGITS = re.compile(r"(cls_score|cls_logits|classification_head\.module_list\.\d+(\.1)?)$")
DELTAS = re.compile(r"(bbox_pred|bbox_reg|regression_head\.module_list\.\d+(\.1)?)$")


def with_spread_scores(detector, shape):
    """Random weights score all boxes alike, and rounding would choose among them: what the heads give is spread."""
    for pattern, spread in ((LOGITS, 2.0), (DELTAS, 0.5)):
        heads = [each for name, each in detector.named_modules()
                 if pattern.search(name) and isinstance(each, (nn.Linear, nn.Conv2d))]
        seen = {}
        hooks = [head.register_forward_hook(lambda head, _, result: seen.setdefault(head, []).append(result)) for head in heads]
        with torch.no_grad():
            detector.eval()(*inputs_of([shape], seed=5))
        for hook in hooks:
            hook.remove()
        for head in heads:
            deviation = torch.cat([each.flatten() for each in seen[head]]).std()
            head.weight.data.mul_(spread / deviation)
            if head.bias is not None:
                head.bias.data.zero_()
    return detector


def with_statistics_in_order(detector, shape):
    """One norm after the other, in evaluation mode: in training mode detectors want targets, and some norms are frozen."""
    def take(norm, inputs):
        norm.running_mean.fill_(inputs[0].mean())  # of all channels: the last maps have one place
        norm.running_var.fill_(inputs[0].var())

    kinds = (nn.BatchNorm2d, torchvision.ops.misc.FrozenBatchNorm2d)
    norms = [each for each in detector.modules() if isinstance(each, kinds)]
    hooks = [norm.register_forward_pre_hook(take) for norm in norms]
    with torch.no_grad():
        detector.eval()(*inputs_of([shape], seed=5))
    for hook in hooks:
        hook.remove()
    return detector


def with_statistics(network, module):
    """Batch norms have the statistics of random images, so that no activation vanishes."""
    if network.is_detector:
        return with_spread_scores(with_statistics_in_order(module, network.shapes[0]), network.shapes[0])
    norms = [each for each in module.modules() if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))]
    module.eval()
    for norm in norms:
        norm.train()
        norm.momentum = None
    if norms:
        with torch.no_grad():
            module(*inputs_of([[max(2, shape[0]), *shape[1:]] for shape in network.shapes], seed=5))
    for norm in norms:
        norm.momentum = 0.1
    return module.eval()


def without_zeros(module):
    """Weights that begin at zero would hide what comes before them."""
    for parameter in module.parameters():
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.05)
    return module


def inputs_of(shapes, seed):
    torch.manual_seed(seed)
    return [torch.rand(shape) for shape in shapes]


def made(network):
    torch.manual_seed(0)
    return with_statistics(network, without_zeros(network.make()))


def all_networks():
    return classifiers() + segmenters() + videos() + detectors() + flows() + others()
