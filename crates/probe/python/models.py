"""Models whose convolutions `layers.py` lists: each function gives a way to make one, and a way to make its inputs."""
import torch as t


def image(size, channels=3):
    return lambda: ((t.empty(2, channels, size, size),), {})


def torchvision_model(name, size=224, **kw):
    import torchvision
    kw = {"init_weights": False, "aux_logits": False} if name in ("inception_v3", "googlenet") else kw
    return lambda: getattr(torchvision.models, name)(**kw), image(size)


def unet(size):
    """The plain U-Net: pairs of 3x3, with a bottleneck of 1024 channels."""
    def make():
        nn = t.nn

        def pair(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())

        class UNet(nn.Module):
            def __init__(s):
                super().__init__()
                c = [64, 128, 256, 512, 1024]
                s.down = nn.ModuleList([pair(a, b) for a, b in zip([3] + c[:-1], c)])
                s.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(c[:-1], c[1:])][::-1])
                s.join = nn.ModuleList([pair(2 * a, a) for a in c[:-1]][::-1])
                s.out = nn.Conv2d(64, 1, 1)

            def forward(s, x):
                kept = []
                for i, d in enumerate(s.down):
                    x = d(x if i == 0 else t.nn.functional.max_pool2d(x, 2))
                    kept.append(x)
                kept.pop()
                for u, j in zip(s.up, s.join):
                    x = j(t.cat([kept.pop(), u(x)], 1))
                return s.out(x)
        return UNet()
    return make, image(size)


def small_cnn(size, classes=10, channels=3):
    """What tutorials train on CIFAR and MNIST."""
    def make():
        nn = t.nn
        return nn.Sequential(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes))
    return make, image(size, channels)


def dcgan(size=64):
    def make():
        nn = t.nn
        c = 64
        up = [nn.ConvTranspose2d(100, c * 8, 4, 1, 0, bias=False), nn.BatchNorm2d(c * 8), nn.ReLU()]
        for a, b in ((8, 4), (4, 2), (2, 1)):
            up += [nn.ConvTranspose2d(c * a, c * b, 4, 2, 1, bias=False), nn.BatchNorm2d(c * b), nn.ReLU()]
        up += [nn.ConvTranspose2d(c, 3, 4, 2, 1, bias=False), nn.Tanh(), nn.Conv2d(3, c, 4, 2, 1, bias=False), nn.LeakyReLU(.2)]
        for a, b in ((1, 2), (2, 4), (4, 8)):
            up += [nn.Conv2d(c * a, c * b, 4, 2, 1, bias=False), nn.BatchNorm2d(c * b), nn.LeakyReLU(.2)]
        return nn.Sequential(*up, nn.Conv2d(c * 8, 1, 4, 1, 0, bias=False))
    return make, lambda: ((t.empty(2, 100, 1, 1),), {})


def multires(h, w, c=48):
    """A U-Net with group norms whose input changes its size from step to step."""
    def make():
        nn = t.nn

        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU())

        class UNet(nn.Module):
            def __init__(s):
                super().__init__()
                ch = [c, 2 * c, 4 * c, 8 * c]
                s.inp = nn.Conv2d(3, c, 3, padding=1)
                s.down = nn.ModuleList([block(a, b) for a, b in zip([c] + ch[:-1], ch)])
                s.up = nn.ModuleList([block(a + b, b) for a, b in zip([8 * c, 4 * c, 2 * c], [4 * c, 2 * c, c])])
                s.out = nn.Conv2d(c, 3, 1)

            def forward(s, x):
                x, kept = s.inp(x), []
                for k, d in enumerate(s.down):
                    x = d(x)
                    kept.append(x)
                    if k < 3:
                        x = nn.functional.avg_pool2d(x, 2)
                for k, u in enumerate(s.up):
                    old = kept[2 - k]
                    x = u(t.cat([nn.functional.interpolate(x, size=old.shape[-2:]), old], 1))
                return s.out(x)
        return UNet()
    return make, lambda: ((t.empty(2, 3, h, w),), {})


def diffusers_unet(kind, latent):
    import diffusers
    if kind == "sd15":
        make = lambda: diffusers.UNet2DConditionModel(cross_attention_dim=768)
        cross = 768
        extra = {}
    elif kind == "sdxl":
        make = lambda: diffusers.UNet2DConditionModel(
            block_out_channels=(320, 640, 1280), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), transformer_layers_per_block=(1, 1, 1), attention_head_dim=(5, 10, 20),
            cross_attention_dim=2048, use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816)
        cross = 2048
        extra = {"added_cond_kwargs": True}
    else:
        return (lambda: diffusers.UNet2DModel(sample_size=latent, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(128, 128, 256, 256, 512, 512),
                down_block_types=("DownBlock2D",) * 4 + ("AttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "AttnUpBlock2D") + ("UpBlock2D",) * 4)), \
            lambda: ((t.empty(2, 3, latent, latent), t.zeros(2, dtype=t.long)), {})

    def inputs():
        kw = {"encoder_hidden_states": t.empty(2, 77, cross)}
        if extra:
            kw["added_cond_kwargs"] = {"text_embeds": t.empty(2, 1280), "time_ids": t.empty(2, 6)}
        return (t.empty(2, 4, latent, latent), t.zeros(2, dtype=t.long)), kw
    return make, inputs


def diffusers_vae(size):
    import diffusers
    make = lambda: diffusers.AutoencoderKL(block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=2, latent_channels=4)
    return make, image(size)


def timm_model(name, size=224):
    import timm
    return lambda: timm.create_model(name), image(size)


def whisper(d):
    """The two convolutions in front of the encoder."""
    return (lambda: t.nn.Sequential(t.nn.Conv1d(80, d, 3, padding=1), t.nn.GELU(), t.nn.Conv1d(d, d, 3, stride=2, padding=1))), lambda: ((t.empty(2, 80, 3000),), {})


def wav2vec(samples):
    def make():
        nn = t.nn
        parts = []
        for i, (k, s) in enumerate([(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]):
            parts += [nn.Conv1d(1 if i == 0 else 512, 512, k, s, bias=False), nn.GELU()]
        return nn.Sequential(*parts, nn.Conv1d(512, 768, 1), nn.Conv1d(768, 768, 128, padding=64, groups=16))
    return make, lambda: ((t.empty(2, 1, samples),), {})


def fpn(size):
    import torchvision
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.models.detection.rpn import RPNHead

    def make():
        b = resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5)

        class Net(t.nn.Module):
            def __init__(s):
                super().__init__()
                s.b, s.r = b, RPNHead(256, 3)

            def forward(s, x):
                f = list(s.b(x).values())
                return s.r(f)
        return Net()
    return make, lambda: ((t.empty(2, 3, *size),), {})


def video(name):
    import torchvision
    return lambda: getattr(torchvision.models.video, name)(), lambda: ((t.empty(2, 3, 16, 112, 112),), {})


def segmentation(name, size):
    import torchvision
    return lambda: getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, aux_loss=True), image(size)
