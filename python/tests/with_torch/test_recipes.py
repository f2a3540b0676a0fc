# SPDX-License-Identifier: BSD-3-Clause
"""The recipes of docs/reference/torch-recipes.md, as they stand there, run by torchrun with the packages they are
for."""
import importlib.util
import re
import tempfile
import textwrap
import unittest

from test_examples import ROOT, torchrun

BEGIN = """
import contextlib, sys, torch
from torch import nn
import pici.torch

folder = sys.argv[1]
torch.set_num_threads(1)

def same(ours, others):
    for x, y in zip(ours.parameters(), others.parameters()):
        assert torch.equal(x, y)
"""

ACCUMULATION = """
torch.distributed.init_process_group("gloo")
model = nn.Linear(100, 30)
ddp = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
state = pici.torch.TopKState(density=0.1, start_iter=0)
ddp.register_comm_hook(state, pici.torch.topk_hook)
batches = [(torch.randn(8, 100), torch.randint(30, (8,))) for _ in range(16)]
loss = nn.functional.cross_entropy
{recipe}
assert state.stats()["calls"] == 4, state.stats()
"""

AMP = """
torch.distributed.init_process_group("gloo")
model = nn.Linear(100, 30)
ddp = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{recipe}
ddp.register_comm_hook(state, pici.torch.topk_hook)
for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = ddp(torch.randn(8, 100)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
assert state.stats()["calls"] == 4, state.stats()
"""

ACCELERATE = """
import accelerate

def run(steps, resume=None):
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(0)
    model = nn.Linear(100, 30)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
{recipe}
    if resume:
        accelerator.load_state(resume)
    for step in steps:
        torch.manual_seed(2 * step + accelerator.process_index)
        optimizer.zero_grad()
        accelerator.backward(model(torch.randn(8, 100)).square().mean())
        optimizer.step()
        if step == 4 and not resume:
            accelerator.save_state(folder)
    assert state.stats()["calls"] == len(steps)
    return model

same(run(range(10)), run(range(5, 10), folder))
"""

LIGHTNING = """
import lightning

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(100, 30)

    def training_step(self, batch, i):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def run(resume, calls):
    keep = lightning.pytorch.callbacks.ModelCheckpoint(folder, filename="{{epoch}}", save_top_k=-1)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
    options = dict(accelerator="cpu", devices=2, max_epochs=2, default_root_dir=folder, **quiet)
{recipe}
    trainer.callbacks.append(keep)
    net = Net()
    trainer.fit(net, torch.utils.data.DataLoader(data, 16), ckpt_path=resume)
    assert hook.state.stats()["calls"] == calls, hook.state.stats()
    return net

torch.manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(128, 100), torch.randint(30, (128,)))
same(run(None, 8), run(folder + "/epoch=0.ckpt", 4))
"""

TRANSFORMERS = """
import transformers

def run(resume, calls):
    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    args = transformers.TrainingArguments(
        folder, use_cpu=True, ddp_backend="gloo", max_steps=6, save_steps=3, per_device_train_batch_size=4,
        report_to=[], disable_tqdm=True, max_grad_norm=0.0,
    )
    trainer = transformers.Trainer(model, args, train_dataset=data)
{recipe}
    trainer.train(resume_from_checkpoint=resume)
    assert state.iter == 6 and state.stats()["calls"] == calls, (state.iter, state.stats())
    return model

torch.manual_seed(1)
data = [{{"input_ids": x, "labels": x}} for x in torch.randint(50, (64, 16))]
whole = run(None, {whole})
same(whole, run(folder + "/checkpoint-3", {rest}))
"""


class Recipes(unittest.TestCase):
    def run_recipe(self, title, program, package=None, indent="", **calls):
        """Run a program with the lines that stand on the page below **title**, or the header."""
        if package and importlib.util.find_spec(package) is None:
            self.skipTest(f"recipe for {package}: not installed")
        page = (ROOT / "docs/reference/torch-recipes.md").read_text()
        found = re.search(rf"^(?:\*\*{title}\*\*|## {title}$).*?\n\n((?: {{4}}[^\n]*\n|\n)+)", page, re.M | re.S)
        self.assertIsNotNone(found, f"no recipe {title}")
        recipe = textwrap.indent(textwrap.dedent(found[1]), indent)
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(BEGIN + program.format(recipe=recipe, **calls))
            file.flush()
            torchrun(file.name, folder)

    def test_accumulation(self):
        self.run_recipe("Gradient accumulation", ACCUMULATION)

    def test_amp(self):
        self.run_recipe("With AMP", AMP)

    def test_accelerate(self):
        self.run_recipe("accelerate", ACCELERATE, "accelerate", "    ")

    def test_lightning(self):
        self.run_recipe("Lightning", LIGHTNING, "lightning", "    ")

    def test_transformers(self):
        self.run_recipe("transformers", TRANSFORMERS, "transformers", "    ", whole=6, rest=3)


if __name__ == "__main__":
    unittest.main()
