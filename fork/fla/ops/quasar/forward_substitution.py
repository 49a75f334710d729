"""The inverse of unit lower triangular matrices."""
import torch


def forward_substitution_kernel(lower):
    """lower [..., C, C]; its diagonal is taken to be ones, and what stands above it is not read. Returns the
    inverse, in fp32 at least: nearly parallel keys make its elements cancel."""
    wide = lower if lower.dtype is torch.float64 else lower.float()
    identity = torch.eye(lower.shape[-1], dtype=wide.dtype, device=lower.device)
    return torch.linalg.solve_triangular(wide, identity.expand_as(wide), upper=False, unitriangular=True)


def quasar_forward_substitution(L):
    """L [B, H, C, C] to its inverse, in L's dtype. The reference fork's name for what can be differentiated."""
    return forward_substitution_kernel(L).to(L.dtype)


forward_substitution = quasar_forward_substitution
