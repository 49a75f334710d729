#compdef quasar
# zsh completion for quasar, made from its command table

_quasar_wallet_new()
{
	_arguments \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--words=[Number of words in the phrase.]:N:(12 15 18 21 24)' \
		'--crypto=[Kind of key. Bittensor'\''s hotkeys are sr25519.]:KIND:(sr25519 ed25519)' \
		'--encrypt[Encrypt the key file with WALLET_PASSWORD, or ask for a password.]' \
		'--force[Replace an existing hotkey.]' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_wallet_import()
{
	_arguments \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--crypto=[Kind of key. Bittensor'\''s hotkeys are sr25519.]:KIND:(sr25519 ed25519)' \
		'--encrypt[Encrypt the key file with WALLET_PASSWORD, or ask for a password.]' \
		'--force[Replace an existing hotkey.]' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_wallet_list()
{
	_arguments \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_wallet_show()
{
	_arguments \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_wallet_sign()
{
	_arguments \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--message-hex=[The bytes to sign.]:HEX:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_wallet_verify()
{
	_arguments \
		'--address=[SS58 address of the signer.]:ADDRESS:' \
		'--message-hex=[The bytes that were signed.]:HEX:' \
		'--signature=[The signature, 128 hex digits.]:HEX:' \
		'--crypto=[Kind of key. Bittensor'\''s hotkeys are sr25519.]:KIND:(sr25519 ed25519)' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_wallet()
{
	local line state
	_arguments -C \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'1:command:->command' '*::argument:->arguments'
	case $state in
	command) local -a names=(
		'new:create a hotkey and show its phrase once'
		'import:restore a hotkey from its phrase, seed, private key or URI'
		'list:list hotkeys and their addresses'
		'show:show a hotkey'\''s address, never its secrets'
		'sign:sign bytes with a hotkey'
		'verify:verify a signature'
		)
		_describe command names ;;
	arguments) (( $+functions[_quasar_wallet_$line[1]] )) && _quasar_wallet_$line[1] ;;
	esac
}

_quasar_init()
{
	_arguments \
		'--fork-url=[Clone the fork from URL.]:URL:' \
		'--github[Create a fork on GitHub with GITHUB_TOKEN, and clone it.]' \
		'--from=[Use an existing clone as the fork, in place.]:DIR:_files -/' \
		'--seq=[Sequence length to compete at, in tokens; written to .env.]:N:' \
		'--api=[Base URL of the validator API; written to .env.]:URL:' \
		'--wallet=[Name of the wallet that holds the hotkey; written to .env.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet; written to .env.]:NAME:' \
		'--path=[Folder that holds the wallets; written to .env.]:DIR:_files -/' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_register()
{
	_arguments \
		'--seq=[Target sequence length, in tokens; it determines the league.]:N:' \
		'--model=[Reference model to register for.]:NAME:' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_verify()
{
	_arguments \
		'--seq=[Sequence length to look at most, in tokens.]:N:' \
		'--fork=[Path of the fork. Default\: the workspace'\''s.]:PATH:' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--full[Look at lengths up to 262144 tokens and at the target, as far as time and memory allow.]' \
		'--target=[Target sequence length. Left out if it takes long, unless given here, with --full or --claimed.]:N:' \
		'--budget=[Time limit for all computations.]:SECONDS:' \
		'--static[Only check files, imports, git and Python'\''s syntax; run nothing.]' \
		'--strict[Fail instead of warning if chunk.py lacks one of the twelve import lines.]' \
		'--claimed=[Tokens/s that you want to claim\: fail if less than 90% of it is measured at the target.]:N:' \
		'--semantics=[Variant of the operation. QuasarAttention\: upstream, what the reference fork computes (default), or causal, the published recurrence. Linear attention\: by default bidirectional, elu+1 and normalised.]:NAME,...:(upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised)' \
		'--native[Check quasar'\''s own code, not a fork.]' \
		'--op=[Check only an operation of quasar'\''s own. Without NAME\: quasar.]:[NAME]:(quasar linear)' \
		'--weights=[Weights of the layer\: a safetensors file with the fork'\''s parameter names. Default\: random.]:FILE:_files' \
		'--device=[Where to compute\: auto, cpu, cuda or cuda\:N.]:NAME:' \
		'--seed=[Seed of an earlier run, to repeat it.]:N:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_bench()
{
	_arguments \
		'--seq=[Sequence length in tokens; several give a table. Default\: the target.]:N[,N...]:' \
		'--target=[Sequence length to measure without --seq.]:N:' \
		'--fork=[Path of another fork than the workspace'\''s; nothing is stored.]:PATH:' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--native[Measure quasar'\''s own layer.]' \
		'--op=[Measure only an operation, quasar'\''s own. Without NAME\: quasar.]:[NAME]:(quasar linear)' \
		'--semantics=[Variant of the operation. QuasarAttention\: upstream, what the reference fork computes (default), or causal, the published recurrence. Linear attention\: by default bidirectional, elu+1 and normalised.]:NAME,...:(upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised)' \
		'--runs=[Number of timed calls\: so many, whether the median is settled or not.]:N:' \
		'--budget=[Time limit for each length.]:SECONDS:' \
		'--compare[Compare with the last and the best earlier result.]' \
		'--csv[Print CSV\: a row for each length and run.]' \
		'--markdown[Print a table in Markdown.]' \
		'--weights=[Weights of the layer\: a safetensors file with the fork'\''s parameter names. Default\: random.]:FILE:_files' \
		'--device=[Where to compute\: auto, cpu, cuda or cuda\:N.]:NAME:' \
		'--seed=[Seed for random weights and input of --native and --op.]:N:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_tune()
{
	_arguments \
		'--gpu=[Predict for a GPU that is not here\: a100, h100-pcie, 4090, rtx5090.]:NAME:' \
		'--op=[Operation to tune. Without NAME\: quasar.]:[NAME]:(quasar linear)' \
		'--semantics=[Variant of the operation. QuasarAttention\: upstream, what the reference fork computes (default), or causal, the published recurrence. Linear attention\: by default bidirectional, elu+1 and normalised.]:NAME,...:(upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised)' \
		'--kernel=[Kernel to tune. Default\: all.]:NAME:' \
		'--seq=[Sequence length in tokens. Default\: the target.]:N:' \
		'--target=[Sequence length without --seq.]:N:' \
		'--head-dim=[Size of a head.]:N:' \
		'--heads=[Number of heads.]:N:' \
		'--dtype=[Type of the tensors.]:TYPE:(bf16 fp16 fp32)' \
		'--budget=[Time limit.]:SECONDS:' \
		'--strategy=[How to choose among the candidates.]:NAME:(auto exhaustive halving local)' \
		'--seed=[Seed for the input and for random choices.]:N:' \
		'--devices=[Numbers of the GPUs, all of one kind, that candidates are spread over.]:N[,N...]:' \
		'--resume[Go on with a tuning that was interrupted.]' \
		'--explain[Say why the first configuration leads, and how far it is from the roofline.]' \
		'--list[List the stored results.]' \
		'--show=[Show a stored result.]:ID:' \
		'--export=[Write the stored results to a file, for another machine.]:FILE:_files' \
		'--import=[Add the results of such a file.]:FILE:_files' \
		'--forget=[Delete a stored result, or all.]:ID|all:' \
		'--apply[Write the stored results into the fork, as `quasar export` does.]' \
		'--triton[Tune the Triton kernels of the fork instead.]' \
		'--write[Put the configurations found into the source of the fork'\''s Triton kernels.]' \
		'--fork=[Path of another fork than the workspace'\''s, for --triton and --apply.]:PATH:' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_score()
{
	_arguments \
		'--seq=[Target sequence length, in tokens.]:N:' \
		'--tokens-per-sec=[Measured speed.]:X:' \
		'--claimed=[Claimed speed.]:X:' \
		'--validator-gpu=[GPU that the speed is measured on, as validators name it.]:NAME:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_leagues()
{
	_arguments \
		'--seq=[Target sequence length, in tokens; its league is marked.]:N:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_export()
{
	_arguments \
		'--op-only[Write only the operation, and leave the layer as it is.]' \
		'--dry-run[Show what would change, but write nothing.]' \
		'--force[Overwrite uncommitted changes, and write to a fork that is not under git.]' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_push()
{
	_arguments \
		'--message=[Commit message. Default\: the file that was changed, or how many were.]:TEXT:' \
		'--timeout=[Time limit for the push.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_commit()
{
	_arguments \
		'--seq=[Sequence length to compete at, in tokens.]:N:' \
		'--margin=[How far below the measured median to claim at least.]:PERCENT:' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--claim=[Tokens/s to claim. Default\: the benchmark'\''s median less the margin.]:N:' \
		'--no-verify[Send even if checks fail, and skip those that compute. A failed validation scores zero, and five of them ban the address.]' \
		'--again[Send even if this commit was submitted before.]' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_reveal()
{
	_arguments \
		'--wait[Wait for the block, showing a countdown.]' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_submit()
{
	_arguments \
		'--seq=[Sequence length to compete at, in tokens.]:N:' \
		'--margin=[How far below the measured median to claim at least.]:PERCENT:' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--claim=[Tokens/s to claim. Default\: the benchmark'\''s median less the margin.]:N:' \
		'--no-verify[Send even if checks fail, and skip those that compute. A failed validation scores zero, and five of them ban the address.]' \
		'--again[Send even if this commit was submitted before.]' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_run()
{
	_arguments \
		'--improve=[How far a weighted score must exceed the last one. -100%\: commit every new HEAD.]:PERCENT:' \
		'--interval=[Time from the start of one round of work to the next.]:SECONDS:' \
		'--notify=[Run CMD in a shell for each event.]:CMD:' \
		'--log=[Output format\: for programs or for people.]:FORMAT:(json text)' \
		'--seq=[Sequence length to compete at, in tokens.]:N:' \
		'--margin=[How far below the measured median to claim at least.]:PERCENT:' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for one exchange with the validator; what fails is retried later.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_status()
{
	_arguments \
		'--watch[Keep it updated until interrupted.]' \
		'--interval=[With --watch\: how often to ask the validator, and the time limit for its response (at least 5).]:SECONDS:' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_round()
{
	_arguments \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_leaderboard()
{
	_arguments \
		'--top=[Number of ranks to show.]:N:' \
		'--validator-gpu=[Also show speeds as measured on this GPU, where they are normalised.]:NAME:' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_gpus()
{
	_arguments \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_doctor()
{
	_arguments \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--timeout=[Time limit for each response from the validator.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_localnet()
{
	_arguments \
		'--like=[2026-02 or 2026-04\: as the validator deployed then, faults included. strict\: as it should be.]:VERSION:' \
		'--port=[Port to listen on; 0\: any free port.]:N:' \
		'--listen=[Address to listen on; 0.0.0.0\: every interface.]:ADDRESS:' \
		'--db=[File to keep the state in. Default\: localnet.db in the workspace, or else in the current directory.]:FILE:_files' \
		'--block-time=[Duration of a block.]:SECONDS:' \
		'--blocks-until-reveal=[Blocks between a commitment and its reveal.]:N:' \
		'--rate-limit=[Signed requests per hotkey in 60 seconds; 0\: no limit. Default\: no limit with 2026-02, 10 with strict.]:N:' \
		'--cooldown=[Time between two submissions of a hotkey; 0\: none. Default\: 300 with 2026-04, none with the others.]:SECONDS:' \
		'--round-time=[Duration of a round.]:SECONDS:' \
		'--validator-hotkeys=[With 2026-04\: hotkeys that may judge and read everything.]:ADDRESS,...:' \
		'--api-keys=[With 2026-04\: keys that open /dashboard/.]:KEY,...:' \
		'--connections=[Maximum number of connections; beyond it, the one idle the longest is closed.]:N:' \
		'--request-timeout=[Time limit for a client to send a request, or to stay idle.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_validate()
{
	_arguments \
		'--once[Judge what is waiting, then exit.]' \
		'--interval=[Time between two checks for new submissions.]:SECONDS:' \
		'--finalize[End the round\: immediately with --once, otherwise when its time is up. With 2026-04, where rounds end by themselves\: rank the last one anew.]' \
		'--budget=[Time limit for each length.]:SECONDS:' \
		'--device=[Where to run forks\: auto, cpu, cuda\:N, or all (GPUs). With several, submissions are judged side by side, one on each.]:NAME,...:' \
		'--python=[Python that runs the fork\: a program, or a virtual environment.]:PATH:' \
		'--no-sandbox[Run forks as you, without a sandbox\: only for forks that you trust.]' \
		'--native[In a rehearsal, measure quasar'\''s own layer instead of the fork'\''s.]' \
		'--gpu-factor=[With 2026-04\: divide measured speeds by this. Default\: what validators take for this GPU, 1 for the RTX 5090.]:X:' \
		'--assume-verified[With 2026-04, in a rehearsal\: take the logits of images for right.]' \
		'--local-forks[Clone from any address, including file\:// and paths, for any API.]' \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_export-state()
{
	_arguments \
		'--force[Replace FILE if it exists.]' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_import-state()
{
	_arguments \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_recover()
{
	_arguments \
		'--wallet=[Name of the wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Name of the hotkey in that wallet.]:NAME:' \
		'--path=[Folder that holds the wallets.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--api-version=[Version of the validator'\''s service. auto\: find it out.]:VERSION:(auto 2026-04 2026-02)' \
		'--timeout=[Time limit for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_generate()
{
	_arguments \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar_help()
{
	_arguments \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'*:file:_files'
}

_quasar()
{
	local line state
	_arguments -C \
		'--json[Print one JSON document instead of text.]' \
		'--workspace=[Workspace to use. Default\: $QUASAR_WORKSPACE, or else the current directory or its nearest parent that is a workspace of yours.]:DIR:_files -/' \
		'--quiet[Suppress notices and progress.]' \
		'--verbose[Log more to stderr.]' \
		'--help[Show help.]' \
		'1:command:->command' '*::argument:->arguments'
	case $state in
	command) local -a names=(
		'wallet:create, restore and use the hotkey that signs for you'
		'init:create a workspace\: settings, state and the fork'
		'register:register the hotkey with the validator'
		'verify:run every check that a validator runs'
		'bench:measure the speed of the fork, of quasar'\''s own layer or of an operation'
		'tune:find the fastest configurations of the kernels on a GPU'
		'score:show what a speed is worth\: league, weighted score, score of a claim'
		'leagues:list the leagues, their multipliers and the rewards'
		'export:put quasar'\''s kernels and layer into a fork'
		'push:commit the fork'\''s changes and push them'
		'commit:commit to the fork'\''s HEAD without revealing it yet'
		'reveal:reveal a commitment once its block is reached'
		'submit:submit the fork'\''s HEAD in one step, visible to everyone immediately'
		'run:mine unattended\: verify, bench, commit improvements, reveal, repeat'
		'status:show where each submission stands\: step, blocks left, rank'
		'round:show the current round\: time left, submissions, the score to beat'
		'leaderboard:rank the submissions at the validator, and list the rewards'
		'gpus:list this machine'\''s GPUs, and the data sheets of common ones'
		'doctor:check this machine and workspace, and say how to fix what is missing'
		'localnet:run a validator on this machine, to try things out'
		'validate:judge submissions as a validator\: clone, check, run in a sandbox, score'
		'export-state:export all submissions, with their salts, to an encrypted file'
		'import-state:import submissions that export-state wrote'
		'recover:recover what is left of a damaged or lost state store'
		'generate:write man pages, completions or .env.example'
		'help:explain a command'
		)
		_describe command names ;;
	arguments) (( $+functions[_quasar_$line[1]] )) && _quasar_$line[1] ;;
	esac
}

_quasar "$@"
