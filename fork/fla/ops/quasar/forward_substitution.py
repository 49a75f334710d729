"""The inverse of a unit lower triangular matrix."""
import torch


def forward_substitution_kernel(lower):
    """lower [..., C, C] with ones on the diagonal; what stands on and above it is not read. Returns its
    inverse."""
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(lower, identity.expand_as(lower), upper=False, unitriangular=True)
