"""Where the chunks of several sequences packed into one lie."""
import torch


def prepare_chunk_indices(cu_seqlens, chunk_size):
    """cu_seqlens [N + 1]: where each sequence starts, and the end. Returns [chunks, 2]: the sequence of each
    chunk, and the chunk's number in it."""
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    counts = (lengths + chunk_size - 1) // chunk_size
    sequence = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    first = torch.cumsum(counts, 0) - counts
    return torch.stack([sequence, torch.arange(len(sequence), device=counts.device) - first[sequence]], 1)
