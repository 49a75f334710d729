#include "fork/template.h"

#include "base/embed.h"

#define FORK "templates/fork/"

EMBED(fork_readme, FORK "README.md");
EMBED(fork_gitignore, FORK "gitignore");
EMBED(fork_fla, FORK "fla/__init__.py");
EMBED(fork_layers, FORK "fla/layers/__init__.py");
EMBED(fork_layer, FORK "fla/layers/quasar.py");
EMBED(fork_ops, FORK "fla/ops/__init__.py");
EMBED(fork_quasar, FORK "fla/ops/quasar/__init__.py");
EMBED(fork_chunk, FORK "fla/ops/quasar/chunk.py");
EMBED(fork_intra, FORK "fla/ops/quasar/chunk_intra_token_parallel.py");
EMBED(fork_substitution, FORK "fla/ops/quasar/forward_substitution.py");
EMBED(fork_recurrent, FORK "fla/ops/quasar/fused_recurrent.py");
EMBED(fork_gate, FORK "fla/ops/quasar/gate.py");
EMBED(fork_gate_cu, FORK "fla/ops/quasar/gate.cu");
EMBED(fork_ops_utils, FORK "fla/ops/utils/__init__.py");
EMBED(fork_index, FORK "fla/ops/utils/index.py");
EMBED(fork_utils, FORK "fla/utils.py");

const struct fork_file template_fork[] = {
	{"README.md", fork_readme},
	{".gitignore", fork_gitignore},
	{"fla/__init__.py", fork_fla},
	{"fla/layers/__init__.py", fork_layers},
	{"fla/layers/quasar.py", fork_layer},
	{"fla/ops/__init__.py", fork_ops},
	{"fla/ops/quasar/__init__.py", fork_quasar},
	{"fla/ops/quasar/chunk.py", fork_chunk},
	{"fla/ops/quasar/chunk_intra_token_parallel.py", fork_intra},
	{"fla/ops/quasar/forward_substitution.py", fork_substitution},
	{"fla/ops/quasar/fused_recurrent.py", fork_recurrent},
	{"fla/ops/quasar/gate.py", fork_gate},
	{"fla/ops/quasar/gate.cu", fork_gate_cu},
	{"fla/ops/utils/__init__.py", fork_ops_utils},
	{"fla/ops/utils/index.py", fork_index},
	{"fla/utils.py", fork_utils},
};
const size_t template_fork_count = sizeof(template_fork) / sizeof(template_fork[0]);

const struct fork_file template_cuda = {"fla/ops/quasar/gate.cu", fork_gate_cu};
