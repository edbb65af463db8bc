"""List the convolutions of well-known models: what `sizes.py` then runs on a GPU.

  python layers.py OUT.jsonl.gz [--quick]     # --quick: the first models only, a few hundred jobs

Models are built and run on PyTorch's meta device, which has shapes but no memory, so neither a GPU nor weights are
needed.  Each line is one layer at one batch, precision and layout, most important first, none twice:

  [x sizes, x strides, w sizes, stride, padding, dilation, transposed, output padding, groups, gradients, dtype, layout]

`gradients` are the three of convolution_backward's output mask, or null where a model is only evaluated; layout is "as"
(as the model has it) or "cl" (channels_last).
"""
import gzip, json, sys

import torch as t
from torch.utils._python_dispatch import TorchDispatchMode

from models import dcgan, diffusers_unet, diffusers_vae, fpn, multires, segmentation, small_cnn, timm_model, torchvision_model, unet, video, wav2vec, whisper


class Listen(TorchDispatchMode):
    """Collects the arguments of convolutions."""

    def __init__(self):
        super().__init__()
        self.layers, self.masks = [], {}

    @staticmethod
    def key(x, w, rest):
        return (tuple(x.shape), tuple(x.stride()), tuple(w.shape), *(tuple(r) if isinstance(r, (list, tuple)) else r for r in rest))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is t.ops.aten.convolution.default:
            x, w, _, *rest = args
            k = self.key(x, w, rest)
            if k not in self.masks:
                self.masks[k] = None
                self.layers.append(k)
        elif func is t.ops.aten.convolution_backward.default:
            _, x, w, _, *rest, mask = args
            k = self.key(x, w, rest)
            old = self.masks.get(k) or (False, False, False)
            if k not in self.masks:
                self.layers.append(k)
            self.masks[k] = tuple(bool(a or b) for a, b in zip(old, mask))
        return func(*args, **(kwargs or {}))


def tensors(o):
    if isinstance(o, t.Tensor):
        yield o
    elif isinstance(o, dict):
        for v in o.values():
            yield from tensors(v)
    elif isinstance(o, (list, tuple)):
        for v in o:
            yield from tensors(v)


def listen(make, inputs, backward=True):
    """Layers of a model for a batch of two."""
    with t.device("meta"):
        args, kw = inputs()
        try:
            m = make()
        except NotImplementedError:     # it computes its widths with tensors
            m = None
    m = (m or make().to("meta")).train()
    with Listen() as mode:
        out = m(*args, **kw)
        if backward:
            loss = sum(o.float().sum() for o in tensors(out) if o.is_floating_point() and o.requires_grad)
            loss.backward()
    return [(k, mode.masks[k]) for k in mode.layers]


POPULAR = ["resnet18", "resnet50", "resnet34", "resnet101", "resnet152", "vgg16", "mobilenet_v3_large", "mobilenet_v2", "convnext_tiny", "efficientnet_b0", "densenet121", "vit_b_16", "alexnet",
           "vgg11", "vgg16_bn", "vgg19", "squeezenet1_0", "googlenet", "shufflenet_v2_x1_0", "mobilenet_v3_small", "resnext50_32x4d", "wide_resnet50_2", "regnet_y_400mf", "mnasnet1_0", "efficientnet_v2_s",
           "swin_t", "inception_v3", "convnext_small", "convnext_base", "densenet169", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "regnet_x_400mf", "regnet_y_8gf", "regnet_y_16gf",
           "resnext101_32x8d", "squeezenet1_1", "vgg13", "vgg11_bn", "vgg19_bn", "maxvit_t", "vit_b_32", "vit_l_16", "swin_s", "swin_b", "swin_v2_t"]
REST = ["densenet161", "densenet201", "efficientnet_b5", "efficientnet_b6", "efficientnet_b7", "efficientnet_v2_m", "efficientnet_v2_l", "mnasnet0_5", "mnasnet0_75", "mnasnet1_3", "regnet_x_800mf", "regnet_x_1_6gf",
        "regnet_x_3_2gf", "regnet_x_8gf", "regnet_x_16gf", "regnet_x_32gf", "regnet_y_800mf", "regnet_y_1_6gf", "regnet_y_3_2gf", "regnet_y_32gf", "resnext101_64x4d", "shufflenet_v2_x0_5", "shufflenet_v2_x1_5",
        "shufflenet_v2_x2_0", "wide_resnet101_2", "vgg13_bn", "convnext_large", "vit_l_32", "swin_v2_s", "swin_v2_b"]


def plan():
    """Models with their batches, precisions and layouts, most important first."""
    import random
    f, b, h = "fp32", "bf16", "fp16"

    def size_of(n):
        return 299 if n == "inception_v3" else 224
    for line in [("resnet18", 32, f), ("resnet18", 128, f), ("resnet50", 16, f), ("resnet50", 64, b), ("resnet50", 64, f), ("vgg16", 16, f), ("vgg16", 32, f), ("mobilenet_v3_large", 64, f), ("mobilenet_v3_large", 32, b),
                 ("convnext_tiny", 32, f), ("convnext_tiny", 16, b), ("vit_b_16", 32, f), ("vit_b_16", 16, b), ("resnet50", 48, b)]:
        yield (torchvision_model, line[0], 224), [line[1]], [line[2]], ["as"]
    rng = random.Random(5)
    for _ in range(14):
        y, x, n = rng.choice(range(128, 640, 32)), rng.choice(range(128, 640, 32)), rng.choice([2, 4])
        yield (multires, y, x), [n], [f], ["as"]
    for d in (384, 512, 768, 1024, 1280):
        yield (whisper, d), [1, 2, 4, 8, 16, 32], [f, b], ["as"]
    for n in POPULAR:
        yield (torchvision_model, n, size_of(n)), [32, 64, 16], [f, b], ["as"]
    for n in POPULAR[:13]:
        yield (torchvision_model, n, size_of(n)), [128, 8], [f, b], ["as"]
    for n in POPULAR[:13]:
        yield (torchvision_model, n, size_of(n)), [64, 32], [b, f], ["cl"]
    yield (diffusers_unet, "sd15", 64), [1, 2, 4], [b, f, h], ["as"]
    yield (diffusers_vae, 512), [1, 2, 4], [f, b], ["as"]
    for s in (256, 512):
        yield (unet, s), [4, 8, 16], [f, b], ["as"]
    for n in POPULAR[13:]:
        yield (torchvision_model, n, size_of(n)), [128, 8], [f, b], ["as"]
    for n in POPULAR[:8]:
        yield (torchvision_model, n, size_of(n)), [256, 4, 2, 1], [f, b], ["as"]
    for n in POPULAR[:10]:
        yield (torchvision_model, n, size_of(n)), [64, 32, 128], [h], ["as", "cl"]
    for n in ("resnet18", "resnet50", "vgg16"):
        yield (torchvision_model, n, 32), [128, 64, 256, 32], [f, b], ["as"]
        yield (torchvision_model, n, 256), [32, 64, 16], [f, b], ["as"]
    for n in REST:
        yield (torchvision_model, n, 224), [32, 64, 16], [f, b], ["as"]
    yield (diffusers_unet, "sdxl", 128), [1, 2, 4], [b, f], ["as"]
    yield (diffusers_unet, "ddpm", 128), [16, 8, 4], [f, b], ["as"]
    yield (diffusers_unet, "ddpm", 64), [16, 32, 64], [f, b], ["as"]
    yield (diffusers_unet, "sd15", 32), [1, 2, 4, 8], [b, f], ["as"]
    yield (diffusers_unet, "sd15", 96), [1, 2], [b, f], ["as"]
    for n in ("fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_resnet101", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")[:4]:
        for s in (512, 520):
            yield (segmentation, n, s), [4, 8, 16], [f, b], ["as"]
    for s in ((640, 640), (800, 800), (800, 1088), (800, 1216), (800, 1344)):
        yield (fpn, s), [1, 2, 4], [f, b], ["as"]
    for s in (32, 28):
        yield (small_cnn, s, 10, 3 if s == 32 else 1), [32, 64, 128, 256, 512], [f, b], ["as"]
    yield (dcgan,), [64, 128, 256], [f, b], ["as"]
    for n in ("r3d_18", "mc3_18", "r2plus1d_18"):
        yield (video, n), [2, 4, 8, 16], [f, b], ["as"]
    for s in (16000, 80000, 160000):
        yield (wav2vec, s), [1, 2, 4, 8, 16], [f, b], ["as"]
    for n in ("resnet50", "resnet50d", "resnet26d", "seresnet50", "ecaresnet50d", "tf_efficientnetv2_s", "efficientnet_b0", "regnety_016", "convnextv2_tiny", "mobilenetv3_large_100", "resnetrs50", "cspdarknet53", "darknet53",
              "hrnet_w18", "dla34", "nfnet_f0", "res2net50_26w_4s", "xception", "repvgg_a0", "mixnet_s", "ghostnet_100", "coatnet_0_rw_224", "efficientformer_l1", "poolformer_s12", "dpn68", "skresnet50", "mobilevit_s", "resnest50d",
              "dm_nfnet_f0", "legacy_senet154", "inception_v4", "inception_resnet_v2", "vgg16", "tf_efficientnet_lite0", "mobilenetv4_conv_medium", "fastvit_t8", "edgenext_small", "levit_256", "convmixer_768_32", "volo_d1_224"):
        yield (timm_model, n), [32, 64, 128], [f, b], ["as"]
        yield (timm_model, n), [64, 128, 256], [b], ["cl"]
    for n in POPULAR[:13]:
        yield (torchvision_model, n, size_of(n)), [128, 16, 256, 8], [b, f], ["cl"]
    for n in POPULAR[8:26]:
        yield (torchvision_model, n, size_of(n)), [256, 4, 2, 1], [f, b], ["as"]
    for n in POPULAR[13:26]:
        yield (torchvision_model, n, size_of(n)), [64, 32, 128], [b, f], ["cl"]
    for n in POPULAR[10:26]:
        yield (torchvision_model, n, size_of(n)), [64, 32], [h], ["as"]
    for n in POPULAR[:6]:
        for s in (288, 384, 512):
            yield (torchvision_model, n, s), [8, 16, 32, 64], [f, b], ["as"]
    for n in REST:
        yield (torchvision_model, n, 224), [8, 128], [f, b], ["as"]
    for n in POPULAR[:6]:
        yield (torchvision_model, n, 224), [24, 40, 48, 80, 96, 100, 10, 12, 20, 6, 3, 112, 192], [f, b], ["as"]


def others():
    """Everything that is no convolution: sizes that are asked for with a library handle, and attention."""
    for cell in ("lstm", "gru", "tanh", "relu"):
        for dtype in ("fp32", "bf16", "fp16"):
            for layers, two in ((1, False), (2, True), (2, False), (1, True), (3, False)):
                for i, h, steps, batch in ((64, 128, 50, 16), (512, 768, 100, 16), (256, 256, 128, 32), (300, 512, 35, 64), (128, 512, 200, 8)):
                    if cell in ("tanh", "relu") and (dtype == "fp16" or h == 768):
                        continue
                    for packed in (False, True):
                        yield ["rnn", cell, dtype, i, h, layers, two, steps, batch, 0.0, packed]
                    if layers > 1:
                        yield ["rnn", cell, dtype, i, h, layers, two, steps, batch, 0.1, False]
    import random
    rng = random.Random(9)
    for _ in range(12):
        batch, steps = rng.choice([8, 16, 24]), rng.randint(20, 400)
        yield ["rnn", "lstm", "fp32", 512, 768, 3, False, steps, batch, 0.1, False]
    for h in (32, 64, 96, 100, 128, 200, 256, 384, 512, 640, 768, 1024, 1500, 2048):
        for i in (1, 32, 128, 300, 512, 1024):
            for steps, batch in ((20, 16), (35, 20), (100, 32), (64, 64), (256, 8), (512, 4)):
                if (h * 7 + i + steps) % 3 == 0:
                    yield ["rnn", ("lstm", "gru")[(h // 4 + steps) % 2], "fp32", i, h, 1 + (i % 3), bool(batch % 3), steps, batch, 0.0, False]
    for steps in (50, 100, 200, 500, 1000):
        for batch in (1, 4, 8, 16, 32):
            for classes, labels in ((29, 20), (32, 40), (1000, 30), (80, 10)):
                if labels * 2 < steps:
                    yield ["ctc", steps, batch, classes, labels]
    for batch, heads, steps in ((4, 12, 512), (8, 12, 1024), (1, 32, 2048), (16, 12, 384), (2, 16, 256), (1, 8, 4096), (16, 12, 197)):
        for width in (64, 128):
            for dtype in ("bf16", "fp16"):
                for causal in (False, True):
                    yield ["sdpa", batch, heads, steps, width, dtype, causal]


def after(job):
    """Sizes of what a layer gives."""
    xs, xt, ws, *rest = job[:9]
    return list(t.ops.aten.convolution(t.empty_strided(xs, xt, device="meta"), t.empty(ws, device="meta"), None, *rest).shape)


QUICK_MODELS, QUICK_OTHERS = 6, 60


def main():
    quick = "--quick" in sys.argv[2:]
    seen, known, out = set(), {}, []
    for place, (what, batches, precisions, layouts) in enumerate(plan()):
        if quick and place >= QUICK_MODELS:
            break
        if what not in known:
            try:
                known[what] = listen(*what[0](*what[1:]))
            except Exception as e:  # a model that this environment lacks or that cannot run without values
                print(what[0].__name__, what[1:], repr(e)[:200], flush=True)
                known[what] = []
        before = len(out)
        for batch in batches:
            for precision in precisions:
                for layout in layouts:
                    for (xs, xt, ws, *rest), mask in known[what]:
                        if layout == "cl" and len(xs) != 4:
                            continue
                        n = max(1, xs[0] * batch // 2)
                        job = [[n, *xs[1:]], list(xt), list(ws), *[list(r) if isinstance(r, tuple) else r for r in rest], list(mask) if mask else None, precision, layout]
                        text = json.dumps(job, separators=(",", ":"))
                        if text not in seen:
                            seen.add(text)
                            out.append(text)
        print(what[0].__name__, *what[1:], batches, precisions, layouts, len(out) - before, len(out), flush=True)
    # Batch norms that follow channels_last layers, and the other ways to choose a plan, go between the layers: what
    # is likelier to be met comes first.
    layers, norms, extra = [json.loads(o) for o in out], [], {"benchmark": [], "no-tf32": [], "deterministic": []}
    for job in layers:
        if job[11] == "cl" and job[10] != "fp16":
            norm = json.dumps(["bn", after(job), job[10]], separators=(",", ":"))
            if norm not in seen:
                seen.add(norm)
                norms.append(norm)
    for k, job in enumerate(layers[:9000]):
        extra["benchmark"].append(json.dumps([*job, "benchmark"], separators=(",", ":")))
        if job[10] == "fp32" and k < 3000:
            extra["no-tf32"].append(json.dumps([*job, "no-tf32"], separators=(",", ":")))
        if k < 1500:
            extra["deterministic"].append(json.dumps([*job, "deterministic"], separators=(",", ":")))
    if quick:
        extra = {name: [] for name in extra}
    rest = [json.dumps(o, separators=(",", ":")) for o in others()][: QUICK_OTHERS if quick else None]
    first, more = 700, iter(out[700:])
    mixed = out[:first] + rest[:400]
    queues = [(rest[400:], 4), (norms, 4), (extra["benchmark"], 6), (extra["no-tf32"], 10), (extra["deterministic"], 20)]
    iters = [(iter(q), n) for q, n in queues]
    for k, job in enumerate(more):
        mixed.append(job)
        if k > 1500:
            for q, n in iters:
                if k % n == 0 and (j := next(q, None)):
                    mixed.append(j)
    out = mixed
    with gzip.GzipFile(sys.argv[1], "wb", 9, mtime=0) as g:
        g.write("\n".join(out).encode() + b"\n")
    print(len(out), "layers")


if __name__ == "__main__":
    main()
