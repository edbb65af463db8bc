"""Memory budgets as tests: a change that makes training need more memory fails, on a machine without a GPU too.

pytest examples/test_memory_budget.py --vramwise-rehearse=rtx4090 --vramwise-report peaks.json
"""

# ruff: noqa: ANN001, ANN201, D103 (tests)

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def model():
    # Fixtures count: what they allocate is part of the test's peak.
    return torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()


def train(model, optimizer, steps=2, samples=8192):
    for _ in range(steps):
        model(torch.randn(samples, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@pytest.mark.max_gpu_memory("1GiB")
def test_training_stays_within_its_budget(model):
    train(model, torch.optim.AdamW(model.parameters()))


@pytest.mark.max_gpu_memory("400MiB", counter="allocated")
def test_inference_keeps_no_activations(model):
    with torch.no_grad():
        model(torch.randn(8192, 1024, device="cuda"))


@pytest.mark.max_gpu_memory("300MiB")
def test_a_fused_optimizer_needs_no_temporaries(model):
    train(model, torch.optim.AdamW(model.parameters(), fused=True), samples=1024)
