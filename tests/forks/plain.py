"""The layer in as few lines as it takes, in PyTorch alone. The forks beside it are this one with something changed; a fork
finds it as fla.plain."""
import torch
import torch.nn as nn
import torch.nn.functional as F

CHUNK = 64


def step_sizes(k, beta):
    length = (k * k).sum(-1)
    return -torch.expm1(-beta * length) / (length + 1e-8)


def maps(k, v, alpha):
    """A chunk's map of the state, S to P S + R; k, v [..., C, S], alpha [..., C]."""
    lower = torch.tril(alpha[..., None] * (k @ k.mT), -1) + torch.eye(k.shape[-2], device=k.device)
    w, u = (torch.linalg.solve_triangular(lower, alpha[..., None] * y, upper=False) for y in (k, v))
    return torch.eye(k.shape[-1], device=k.device) - k.mT @ w, k.mT @ u, w, u


def upstream(q, k, v, beta):
    """What the reference fork computes: heads are parts of the flattened rows, and queries meet the state twice on."""
    batch, tokens, heads, size = q.shape
    padded = -(-tokens // CHUNK) * CHUNK
    q, k, v = (F.pad(x, (0, 0, 0, 0, 0, padded - tokens)).reshape(batch, heads, -1, CHUNK, size) for x in (q, k, v))
    p, r, _, _ = maps(k, v, step_sizes(k, beta.view(-1, 1, 1)))
    state, outputs = q.new_zeros(batch, heads, size, size), []
    for i in range(q.shape[2]):
        state = p[:, :, i] @ state + r[:, :, i]
        outputs.append(q[:, :, i] @ (p[:, :, i] @ state + r[:, :, i]))
    return torch.cat(outputs, 2).transpose(1, 2)[:, :tokens]


def causal(q, k, v, beta):
    """The published recurrence."""
    batch, tokens, heads, size = q.shape
    padded = -(-tokens // CHUNK) * CHUNK
    q, k, v = (F.pad(x, (0, 0, 0, 0, 0, padded - tokens)).transpose(1, 2).reshape(batch, heads, -1, CHUNK, size)
               for x in (q, k, v))
    p, r, w, u = maps(k, v, step_sizes(k, beta.view(-1, 1, 1)))
    state, outputs = q.new_zeros(batch, heads, size, size), []
    for i in range(q.shape[2]):
        new = u[:, :, i] - w[:, :, i] @ state
        outputs.append(q[:, :, i] @ state + torch.tril(q[:, :, i] @ k[:, :, i].mT) @ new)
        state = p[:, :, i] @ state + r[:, :, i]
    return torch.cat(outputs, 2).transpose(1, 2)[:, :tokens]


class QuasarAttention(nn.Module):
    operation = staticmethod(upstream)

    def __init__(self, hidden_size, head_dim, num_heads, mode, use_short_conv):
        super().__init__()
        size = num_heads * head_dim
        self.heads = num_heads
        for name in "qkv":
            setattr(self, f"{name}_proj", nn.Linear(hidden_size, size, bias=False))
            setattr(self, f"{name}_conv1d", nn.Conv1d(size, size, 4, groups=size, bias=False))
        self.beta_log = nn.Parameter(torch.empty(num_heads).uniform_(1, 16).log())
        self.g_proj = nn.Sequential(nn.Linear(hidden_size, head_dim, bias=False), nn.Linear(head_dim, size))
        self.o_norm = nn.Module()
        self.o_norm.weight = nn.Parameter(torch.ones(head_dim))
        self.o_proj = nn.Linear(size, hidden_size, bias=False)

    def convolved(self, name, x):
        y = F.pad(getattr(self, f"{name}_proj")(x).mT, (3, 0))
        return F.silu(getattr(self, f"{name}_conv1d")(y)).mT.unflatten(-1, (self.heads, -1))

    def attend(self, x):
        q, k, v = (self.convolved(name, x).float() for name in "qkv")
        with torch.autocast(x.device.type, enabled=False):
            return self.operation(q, k, v, F.softplus(self.beta_log))

    def finish(self, o, x):
        o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5) * self.o_norm.weight
        return self.o_proj(o.flatten(-2) * torch.sigmoid(self.g_proj(x)))

    def forward(self, x):
        return self.finish(self.attend(x), x), None, None
