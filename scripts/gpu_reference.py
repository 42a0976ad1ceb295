"""PyTorch runs a training step of one of our models for comparison: eager and compiled, bf16.

gpu_reference.py JOB MICRO_BATCH MICRO_BATCHES STEPS MODE: prints the median seconds per step.
GPT-2 of the job file: pre-norm blocks, learned positions, tanh GELU, tied embeddings, attention by
scaled_dot_product_attention, autocast to bf16 over f32 parameters, fused AdamW, clipping by norm.
"""

import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, job):
        super().__init__()
        hidden = job["hidden"]
        self.heads = job["heads"]
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up = nn.Linear(hidden, job["ffn_hidden"])
        self.down = nn.Linear(job["ffn_hidden"], hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        shape = (batch, sequence, self.heads, hidden // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(hidden, dim=2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, job):
        super().__init__()
        self.tokens = nn.Embedding(job["vocab"], job["hidden"])
        self.positions = nn.Embedding(job["sequence"], job["hidden"])
        self.blocks = nn.ModuleList(Block(job) for _ in range(job["layers"]))
        self.norm = nn.LayerNorm(job["hidden"])

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    job = json.load(open(sys.argv[1]))
    micro_batch, micro_batches, steps = map(int, sys.argv[2:5])
    torch.manual_seed(1)
    model = Gpt(job).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    run = torch.compile(model) if sys.argv[5] == "compiled" else model
    data = torch.randint(0, 256, (micro_batches, micro_batch, job["sequence"] + 1), device="cuda")
    times = []
    for step in range(steps + 3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for part in data:
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(part[:, :-1], part[:, 1:])
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= 3:
            times.append(time.perf_counter() - began)
    print(statistics.median(times))


if __name__ == "__main__":
    main()
