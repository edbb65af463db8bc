"""Training steps of known models: are both peaks under `vramwise rehearse` those of a real GPU?

    python models.py measure DIR            on the GPU: DIR/CASE.json for each case (--jobs N at once, --only REGEX)
    python models.py compare DIR --results FILE.jsonl       anywhere: rehearses each case that DIR has
    python models.py run CASE               one case, as the other two run it; prints its JSON

A case is `library/model/batch/precision/optimizer[/sequence length][/ckpt]`, such as `hf/bloom/4/bf16/adamw/512/ckpt`:
three steps (forward, backward, optimizer) with random weights and inputs; nothing is downloaded. `models.txt` lists the
cases that were measured. A case that FILE has a line for is passed over, so that the same command goes on where it was
ended.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PEAKS = ("allocated", "reserved")
STEPS = 3

# model: the automatic class's ending, the model type, and what its configuration has apart from the defaults.
SMALL = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12}
LLAMA_LIKE = {**SMALL, "intermediate_size": 2048, "num_key_value_heads": 4, "vocab_size": 32000, "use_cache": False}
TRANSFORMERS = {
    "bloom": ("CausalLM", "bloom", {"hidden_size": 768, "n_layer": 8, "n_head": 12, "vocab_size": 50000}),
    "codegen": ("CausalLM", "codegen", {"n_embd": 768, "n_layer": 8, "n_head": 12, "rotary_dim": 32}),
    "cohere": ("CausalLM", "cohere", LLAMA_LIKE),
    "falcon": ("CausalLM", "falcon", {**SMALL, "vocab_size": 32000}),
    "gemma": ("CausalLM", "gemma", {**LLAMA_LIKE, "head_dim": 64}),
    "gemma2": ("CausalLM", "gemma2", {**LLAMA_LIKE, "head_dim": 64}),
    "glm": ("CausalLM", "glm", {**LLAMA_LIKE, "head_dim": 64, "pad_token_id": 0}),
    "gpt-bigcode": ("CausalLM", "gpt_bigcode", {"n_embd": 768, "n_layer": 8, "n_head": 12}),
    "gptj": ("CausalLM", "gptj", {"n_embd": 768, "n_layer": 8, "n_head": 12, "rotary_dim": 32}),
    "granite": ("CausalLM", "granite", LLAMA_LIKE),
    "mpt": ("CausalLM", "mpt", {"d_model": 768, "n_layers": 8, "n_heads": 12, "vocab_size": 50000}),
    "olmo2": ("CausalLM", "olmo2", LLAMA_LIKE),
    "phi": ("CausalLM", "phi", {**SMALL, "intermediate_size": 3072}),
    "phi3": ("CausalLM", "phi3", {**LLAMA_LIKE, "pad_token_id": 0}),
    "qwen3": ("CausalLM", "qwen3", {**LLAMA_LIKE, "head_dim": 64}),
    "stablelm": ("CausalLM", "stablelm", LLAMA_LIKE),
    "starcoder2": ("CausalLM", "starcoder2", LLAMA_LIKE),
    "xglm": ("CausalLM", "xglm", {"d_model": 768, "num_layers": 8, "attention_heads": 12, "ffn_dim": 3072, "vocab_size": 50000}),
    "camembert": ("MaskedLM", "camembert", {"vocab_size": 32005, "max_position_embeddings": 514}),
    "convbert": ("MaskedLM", "convbert", {}),
    "deberta-v2": ("MaskedLM", "deberta-v2", {**SMALL, "intermediate_size": 3072, "vocab_size": 50000}),
    "fnet": ("MaskedLM", "fnet", {}),
    "layoutlm": ("MaskedLM", "layoutlm", {}),
    "mobilebert": ("MaskedLM", "mobilebert", {}),
    "modernbert": ("MaskedLM", "modernbert", {"num_hidden_layers": 12}),
    "mpnet": ("MaskedLM", "mpnet", {}),
    "squeezebert": ("MaskedLM", "squeezebert", {}),
    "blenderbot-small": ("Seq2SeqLM", "blenderbot-small", {"use_cache": False}),
    "marian": ("Seq2SeqLM", "marian", {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "decoder_start_token_id": 0, "use_cache": False}),
    "mbart": ("Seq2SeqLM", "mbart", {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "use_cache": False}),
    "mt5": ("Seq2SeqLM", "mt5", {"vocab_size": 60000, "decoder_start_token_id": 0, "use_cache": False}),
    "pegasus": ("Seq2SeqLM", "pegasus", {"d_model": 768, "encoder_layers": 4, "decoder_layers": 4, "use_cache": False}),
    "beit": ("ImageClassification", "beit", {"num_labels": 1000}),
    "focalnet": ("ImageClassification", "focalnet", {"num_labels": 1000}),
    "dinov2": ("ImageClassification", "dinov2", {"image_size": 224, "num_labels": 1000}),
    "pvt-v2": ("ImageClassification", "pvt_v2", {"num_labels": 1000}),
    "swin-hf": ("ImageClassification", "swin", {"num_labels": 1000}),
    "swinv2-hf": ("ImageClassification", "swinv2", {"num_labels": 1000, "window_size": 7}),
    "vit-msn": ("ImageClassification", "vit_msn", {"num_labels": 1000}),
}


def transformers_model(name: str, batch: int, length: int, checkpointed: bool):
    """The model, and a function that gives the loss of a batch."""
    import torch
    import transformers

    head, kind, settings = TRANSFORMERS[name]
    config = transformers.AutoConfig.for_model(kind, **settings)
    model = getattr(transformers, f"AutoModelFor{head}").from_config(config).cuda().train()
    if checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def image_loss():
        pixels = torch.randn(batch, 3, 224, 224, device="cuda")
        return model(pixel_values=pixels, labels=torch.randint(0, 1000, (batch,), device="cuda")).loss

    def text_loss():
        tokens = torch.randint(5, config.vocab_size, (batch, length), device="cuda")
        return model(input_ids=tokens, labels=tokens).loss

    return model, image_loss if head == "ImageClassification" else text_loss


def torchvision_model(name: str, batch: int, segmentation: bool):
    import torch
    import torchvision
    from torch.nn.functional import cross_entropy

    table = torchvision.models.segmentation if segmentation else torchvision.models
    settings = {"weights": None, "weights_backbone": None} if segmentation else {}
    model = getattr(table, name)(**settings).cuda().train()

    def loss():
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        if segmentation:
            return cross_entropy(model(images)["out"], torch.randint(0, 21, (batch, 224, 224), device="cuda"))
        return cross_entropy(model(images), torch.randint(0, 1000, (batch,), device="cuda"))

    return model, loss


def run(case: str) -> dict:
    """Trains three steps; gives the peaks in bytes."""
    import torch

    library, name, batch, precision, optimizer, *rest = case.split("/")
    length = next((int(part) for part in rest if part.isdigit()), 128)
    torch.manual_seed(0)
    if library == "hf":
        model, loss = transformers_model(name, int(batch), length, "ckpt" in rest)
    else:
        model, loss = torchvision_model(name, int(batch), library == "segmentation")
    parameters = list(model.parameters())
    optimize = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=1e-3),
        "sgdm": lambda: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
        "adam": lambda: torch.optim.Adam(parameters),
        "adamw": lambda: torch.optim.AdamW(parameters),
        "rmsprop": lambda: torch.optim.RMSprop(parameters),
    }[optimizer]()
    for _ in range(STEPS):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            value = loss()
        value.backward()
        optimize.step()
        optimize.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    peaks = {peak: stats[f"{peak}_bytes.all.peak"] for peak in PEAKS}
    return {"case": case, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **peaks}


def child(command: list[str], case: str) -> dict:
    done = subprocess.run([*command, __file__, "run", case], capture_output=True, text=True, check=False)
    # Under `rehearse --json` what the program prints comes on standard error.
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith('{"case"')]
    return json.loads(lines[-1]) if lines else {"case": case, "failed": done.stderr[-500:]}


def measure(options: argparse.Namespace) -> None:
    options.folder.mkdir(parents=True, exist_ok=True)
    listed = Path(__file__).with_name("models.txt").read_text().split()
    cases = [case for case in listed if re.search(options.only, case)]

    def one(case: str) -> None:
        line = child([sys.executable], case)
        (options.folder / f"{case.replace('/', '-')}.json").write_text(json.dumps(line))
        print(json.dumps(line), flush=True)

    with ThreadPoolExecutor(options.jobs) as workers:
        list(workers.map(one, cases))


def compare(options: argparse.Namespace) -> None:
    done = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    for path in sorted(options.folder.glob("*.json")):
        measured = json.loads(path.read_text())
        case = measured["case"]
        if "failed" in measured or case in {line["case"] for line in done} or not re.search(options.only, case):
            continue
        with tempfile.TemporaryDirectory() as kept:
            rehearsal = [options.vramwise, "rehearse", "--json", "--quiet", "--gpu", options.gpu, "-o", f"{kept}/r"]
            line = child([*rehearsal, "--", options.python], case)
            report = Path(kept, "r", "report.json")
            told = json.loads(report.read_text()) if report.exists() else {}
        line = {"case": case, "measured": measured, "rehearsed": line}
        line |= {"exact": told.get("exact"), "uncertain": told.get("uncertain")}
        done.append(line)
        with options.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(described(line), flush=True)
    summary(done)


def off(line: dict) -> list[float]:
    """By what part each peak is off."""
    return [line["rehearsed"].get(peak, 0) / line["measured"][peak] - 1 for peak in PEAKS]


def described(line: dict) -> str:
    parts = ", ".join(f"{peak} {part:+.4%}" for peak, part in zip(PEAKS, off(line)) if part)
    said = "called exact" if line["exact"] else "; ".join(text[:60] for text in line["uncertain"] or [])
    return f"{line['case']:45} {line['rehearsed'].get('failed') or parts or 'both exact'} ({said})"


def summary(lines: list[dict]) -> None:
    for library in sorted({line["case"].split("/")[0] for line in lines}):
        some = [line for line in lines if line["case"].startswith(f"{library}/")]
        parts = [off(line) for line in some]
        exact = [sum(part[index] == 0 for part in parts) for index in range(2)]
        worst = max(abs(part) for pair in parts for part in pair)
        false = sum(bool(line["exact"]) and any(part) for line, part in zip(some, parts))
        print(
            f"{library}: {len(some)} cases, allocated exact in {exact[0]}, reserved in {exact[1]}, "
            f"both in {sum(not any(part) for part in parts)}; worst {worst:.3%}; called exact and off: {false}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="run one case here")
    one.add_argument("case")
    for name, text in (("measure", "run the listed cases on this GPU"), ("compare", "rehearse what was measured")):
        command = commands.add_parser(name, help=text)
        command.add_argument("folder", type=Path, help="a JSON file for each case")
        command.add_argument("--only", default="", metavar="REGEX")
    commands.choices["measure"].add_argument("--jobs", type=int, default=1, help="cases at once (each has a process)")
    commands.choices["compare"].add_argument("--results", type=Path, required=True, metavar="FILE.jsonl")
    commands.choices["compare"].add_argument("--gpu", default="h200")
    commands.choices["compare"].add_argument("--vramwise", default="vramwise")
    commands.choices["compare"].add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    if options.command == "run":
        print(json.dumps(run(options.case)))
    else:
        {"measure": measure, "compare": compare}[options.command](options)


if __name__ == "__main__":
    main()
