"""Language models on a GPU: ours against transformers at the same type, with random weights in the shapes that validators'
references have had. transformers takes the tokens that ours generated, all at once, so that each step is compared, even
behind one where the two would have parted; where that is, is printed.

Where two tokens are nearly as good, rounding decides. How far it goes, transformers' own logits in fp32 show: it is also
as far as an exact answer may be from transformers'."""
import concurrent.futures
import random

import pytest
from test_gpu import gpu, real_gpu  # noqa: F401 (fixtures)
from test_model import serve_on_gpu  # noqa: F401 (fixture)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CHALLENGES, PROMPT, GENERATED = 20, 128, 512
COSINE, DIFFERENCE = 0.999, 0.01  # of logits; the difference by the largest one

SHAPES = {
    "qwen2.5-0.5b": ("qwen2", torch.float16, {
        "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "llama": ("llama", torch.float16, {
        "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                            "high_freq_factor": 4.0, "original_max_position_embeddings": 256}}),
    "qwen3-4b": ("qwen3", torch.bfloat16, {
        "vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
}


def make(shape, device):
    """A model whose logits are not all alike."""
    kind, dtype, changes = SHAPES[shape]
    config = transformers.AutoConfig.for_model(kind, max_position_embeddings=PROMPT + GENERATED, **changes)
    torch.manual_seed(7)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() == 1 else 1.2 / parameter.shape[1] ** 0.5
            parameter.normal_(std=spread).add_("norm" in name)
    return model.eval()


def make_challenges(vocabulary):
    """Prompts, and for each the step whose logits are wanted."""
    rng = random.Random(1)
    return [([rng.randrange(vocabulary) for _ in range(PROMPT)], rng.randint(1, GENERATED)) for _ in range(CHALLENGES)]


def logits_of(model, sequences):
    """[GENERATED, vocabulary] for each: what the model says where ours has generated."""
    with torch.inference_mode():
        for sequence in sequences:
            ids = torch.tensor([sequence], device=model.device)
            yield model(ids, logits_to_keep=GENERATED + 1).logits[0, :GENERATED]


def compare(number, step, answer, reference, exact):
    """A line about a challenge, and whether it is passed."""
    tokens = torch.tensor(answer["tokens"], device=reference.device)
    rounding = (reference - exact).abs().amax(-1)
    behind = reference.amax(-1) - reference.gather(1, tokens[:, None])[:, 0]  # of our token, the best
    ours, theirs = torch.tensor(answer["captured_logits"], device=reference.device), reference[step - 1]
    largest = theirs.abs().max()
    cosine = torch.nn.functional.cosine_similarity(ours, theirs, dim=0).item()
    difference = ((ours - theirs).abs().max() / largest).item()
    allowed = max(DIFFERENCE, 2 * (rounding[step - 1] / largest).item())
    line = (f"challenge {number}: step {step}, cosine {cosine:.7f}, difference {difference:.2e}, from fp32 "
            f"{((ours - exact[step - 1]).abs().max() / largest).item():.2e}, theirs {(rounding[step - 1] / largest).item():.2e}")
    parted = (reference.argmax(-1) != tokens).nonzero()[:, 0]
    if len(parted):
        first = parted[0].item()
        line += (f", {len(parted)} tokens differ, the first at step {first + 1}, {behind[first].item():.2e} behind, where "
                 f"rounding is {rounding[first].item():.2e}")
    return line, cosine >= COSINE and difference <= allowed and bool((behind <= 2 * rounding).all())


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_logits_and_tokens_as_transformers(real_gpu, serve_on_gpu, tmp_path, shape):  # noqa: F811
    model = make(shape, "cuda")
    model.save_pretrained(tmp_path / "model")
    server = serve_on_gpu(tmp_path / "model")
    challenges = make_challenges(model.config.vocab_size)
    with concurrent.futures.ThreadPoolExecutor(CHALLENGES) as pool:
        answers = list(pool.map(lambda challenge: server.infer(challenge[0], GENERATED, challenge[1]), challenges))
    server.close()
    sequences = [prompt + answer["tokens"] for (prompt, _), answer in zip(challenges, answers)]
    at_its_type = list(logits_of(model, sequences))
    failed = 0
    for number, exact in enumerate(logits_of(model.float(), sequences)):
        line, passed = compare(number, challenges[number][1], answers[number], at_its_type[number].float(), exact)
        failed += not passed
        print(f"{'ok    ' if passed else 'FAILED'} {shape}, {line}")
    assert not failed
