"""What the benchmarks run: sets a model up, then calls the function given with one step of its work, which returns a loss."""

from __future__ import annotations


def resnet50(torch, step, batch=64):
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def run():
        x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), torch.randint(0, 1000, (batch,), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step(run)


def resnet50_256(torch, step):
    resnet50(torch, step, batch=256)


def gpt2(torch, step, checkpoint=False, **size):
    import transformers

    size = {"n_layer": 12, "n_embd": 768, "n_head": 12, **size}
    config = transformers.GPT2Config(**size, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).cuda()
    if checkpoint:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    lengths = [256, 1024, 512, 768, 384, 896, 640]
    turn = iter(range(10**9))

    def run():
        length = lengths[next(turn) % len(lengths)]
        ids = torch.randint(0, config.vocab_size, (8, length), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step(run)


def gpt2_checkpointed(torch, step):
    gpt2(torch, step, checkpoint=True)


def gpt2_medium(torch, step):
    gpt2(torch, step, n_layer=24, n_embd=1024, n_head=16)


def lstm(torch, step):
    model = torch.nn.LSTM(512, 1024, 2, batch_first=True).cuda()
    head = torch.nn.Linear(1024, 1000).cuda()
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
    turn = iter(range(10**9))

    def run():
        length = 50 + (next(turn) * 37) % 400
        x = torch.randn(64, length, 512, device="cuda")
        out, _ = model(x)
        loss = head(out).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step(run)


def unet(torch, step):
    nn, widths = torch.nn, (64, 128, 256, 512)

    def convolutions(before, after):
        layers = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1), nn.GroupNorm(16, after), nn.SiLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(convolutions(*pair) for pair in zip((3, *widths), widths, strict=False))
            ways = zip(widths[::-1], widths[-2::-1], strict=False)
            self.up = nn.ModuleList(convolutions(below + beside, beside) for below, beside in ways)
            self.last = nn.Conv2d(widths[0], 3, 1)

        def forward(self, image):
            beside = []
            for layers in self.down:
                image = layers(nn.functional.max_pool2d(image, 2) if beside else image)
                beside.append(image)
            beside.pop()
            for layers in self.up:
                other = beside.pop()
                image = layers(torch.cat([nn.functional.interpolate(image, size=other.shape[2:]), other], 1))
            return self.last(image)

    model = UNet().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # Sides of an image, in the order of a shuffled data set sorted into buckets.
    sizes = [(512, 384), (256, 640), (448, 448), (640, 320), (384, 512), (320, 256), (576, 416)]
    turn = iter(range(10**9))

    def run():
        image = torch.randn(3, 3, *sizes[next(turn) % len(sizes)], device="cuda")
        loss = (model(image) - image).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step(run)


def experts(torch, step, width=512, count=8, layers=6):
    """A mixture of experts, two for each token, untrained: every expert gets its share, and it differs from step to step."""
    nn = torch.nn

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, count)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(count)
            )

        def forward(self, tokens):
            normal = self.norm(tokens)
            weights, chosen = self.router(normal).softmax(-1).topk(2)
            out = tokens
            for number, expert in enumerate(self.experts):
                rows, places = torch.where(chosen == number)
                out = out.index_add(0, rows, expert(normal[rows]) * weights[rows, places].unsqueeze(-1))
            return out

    model = nn.Sequential(*(Mixture() for _ in range(layers))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    turn = iter(range(10**9))

    def run():
        tokens = 4000 + next(turn) * 5003 % 12000
        loss = model(torch.randn(tokens, width, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step(run)


def llama(torch, step):
    """Requests to a language model, one a step: a prompt, then token by token."""
    import transformers

    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "vocab_size": 32000}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=16, num_key_value_heads=4)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
    turn = iter(range(10**9))

    def run():
        number = next(turn)
        prompt = torch.randint(5, 32000, (1 + number % 8, 100 + number * 377 % 1300), device="cuda")
        options = {"max_new_tokens": 16, "min_new_tokens": 16, "do_sample": False, "pad_token_id": 0}
        with torch.inference_mode():
            tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        return tokens[:, -16:].float().mean()

    step(run)


MODELS = {
    "resnet50": resnet50,
    "resnet50_256": resnet50_256,
    "gpt2": gpt2,
    "gpt2_checkpointed": gpt2_checkpointed,
    "gpt2_medium": gpt2_medium,
    "lstm": lstm,
    "unet": unet,
    "experts": experts,
    "llama": llama,
}
