#compdef quasar
# zsh completion for quasar, made from its command table

_quasar_wallet_new()
{
	_arguments \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--words=[Length of the phrase.]:N:(12 15 18 21 24)' \
		'--crypto=[Kind of key. Bittensor'\''s hotkeys are sr25519.]:KIND:(sr25519 ed25519)' \
		'--encrypt[Encrypt the key file with WALLET_PASSWORD, or with a password that is asked for.]' \
		'--force[Replace a hotkey that exists.]' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_wallet_import()
{
	_arguments \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--crypto=[Kind of key. Bittensor'\''s hotkeys are sr25519.]:KIND:(sr25519 ed25519)' \
		'--encrypt[Encrypt the key file with WALLET_PASSWORD, or with a password that is asked for.]' \
		'--force[Replace a hotkey that exists.]' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_wallet_list()
{
	_arguments \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_wallet_show()
{
	_arguments \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_wallet_sign()
{
	_arguments \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--message-hex=[The bytes to sign.]:HEX:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_wallet_verify()
{
	_arguments \
		'--address=[SS58 address of the signer.]:ADDRESS:' \
		'--message-hex=[The bytes that were signed.]:HEX:' \
		'--signature=[The signature, 128 hex digits.]:HEX:' \
		'--crypto=[Kind of key. Bittensor'\''s hotkeys are sr25519.]:KIND:(sr25519 ed25519)' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_wallet()
{
	local line state
	_arguments -C \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'1:command:->command' '*::argument:->arguments'
	case $state in
	command) local -a names=(
		'new:make a hotkey and show its phrase once'
		'import:make a hotkey from its phrase, seed, private key or URI'
		'list:list the hotkeys with their addresses'
		'show:show a hotkey'\''s address, never its secrets'
		'sign:sign bytes with a hotkey'
		'verify:check a signature'
		)
		_describe command names ;;
	arguments) (( $+functions[_quasar_wallet_$line[1]] )) && _quasar_wallet_$line[1] ;;
	esac
}

_quasar_init()
{
	_arguments \
		'--fork-url=[Clone the fork from there.]:URL:' \
		'--github[Make a fork on GitHub with GITHUB_TOKEN, and clone it.]' \
		'--from=[Use this clone as the fork, where it is.]:DIR:_files -/' \
		'--add-cu[Add a CUDA source file to a fork that has none.]' \
		'--seq=[Tokens that you will compete at; goes into .env.]:N:' \
		'--api=[Base URL of the validator API; goes into .env.]:URL:' \
		'--wallet=[Wallet of the hotkey; goes into .env.]:NAME:' \
		'--hotkey=[Hotkey in that wallet; goes into .env.]:NAME:' \
		'--path=[Where the wallets are; goes into .env.]:DIR:_files -/' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_register()
{
	_arguments \
		'--seq=[Target sequence length, in tokens; it decides the league.]:N:' \
		'--model=[The model to register for.]:NAME:' \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_verify()
{
	_arguments \
		'--seq=[Tokens to compute on.]:N:' \
		'--fork=[The fork; else the workspace'\''s.]:PATH:' \
		'--full[Also 512 to 262144 tokens and the target, as far as time and memory allow.]' \
		'--target=[The target of --full.]:N:' \
		'--budget=[Time for everything computed.]:SECONDS:' \
		'--static[Stop before anything is computed.]' \
		'--strict[Fail, not warn, when chunk.py lacks one of the twelve import lines.]' \
		'--claimed=[Tokens/s you mean to claim\: fails when less than 0.9 of it is measured.]:N:' \
		'--op=[An operation alone; then no fork is looked at. Alone it means quasar.]:[NAME]:(quasar linear)' \
		'--semantics=[Which function. QuasarAttention\: upstream, what the reference fork computes (default), or causal, the published recurrence. Linear attention\: by default bidirectional, elu+1 and normalised.]:NAME,...:(upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised)' \
		'--weights=[Weights of the layer, as safetensors with the fork'\''s names; else random.]:FILE:_files' \
		'--device=[Where to compute\: auto, cpu, cuda or cuda\:N.]:NAME:' \
		'--seed=[Repeat a run\: the seed it showed.]:N:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_bench()
{
	_arguments \
		'--seq=[Tokens; several lengths give a table. Else the target.]:N[,N...]:' \
		'--target=[What is measured without --seq.]:N:' \
		'--python[The fork'\''s layer, by its own Python.]' \
		'--layer[Quasar'\''s own layer.]' \
		'--op=[An operation alone, quasar'\''s own. Alone it means quasar.]:[NAME]:(quasar linear)' \
		'--semantics=[Which function. QuasarAttention\: upstream, what the reference fork computes (default), or causal, the published recurrence. Linear attention\: by default bidirectional, elu+1 and normalised.]:NAME,...:(upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised)' \
		'--runs=[Timed calls.]:N:' \
		'--budget=[Time for each length.]:SECONDS:' \
		'--compare[Show earlier results beside each.]' \
		'--weights=[Weights of the layer, as safetensors with the fork'\''s names; else random.]:FILE:_files' \
		'--device=[Where to compute\: auto, cpu, cuda or cuda\:N.]:NAME:' \
		'--seed=[Of the random weights and input.]:N:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_score()
{
	_arguments \
		'--seq=[Target sequence length, in tokens.]:N:' \
		'--tokens-per-sec=[The speed, as measured.]:X:' \
		'--claimed=[The speed that was claimed.]:X:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_leagues()
{
	_arguments \
		'--seq=[Target sequence length, in tokens, whose league is marked.]:N:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_push()
{
	_arguments \
		'--message=[What the commit says; else which file it changes, or how many.]:TEXT:' \
		'--timeout=[Longest time for the push.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_commit()
{
	_arguments \
		'--seq=[Tokens to compete at.]:N:' \
		'--margin=[What the claim stays below the measured median.]:PERCENT:' \
		'--claim=[Tokens/s to claim, instead of the benchmark'\''s median less the margin.]:N:' \
		'--no-verify[Send even what the checks refuse, and leave out those that compute. A failed validation scores zero, and five ban the address.]' \
		'--again[Send although this commit was submitted before.]' \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_reveal()
{
	_arguments \
		'--wait[Wait for the block, with a countdown.]' \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_submit()
{
	_arguments \
		'--seq=[Tokens to compete at.]:N:' \
		'--margin=[What the claim stays below the measured median.]:PERCENT:' \
		'--claim=[Tokens/s to claim, instead of the benchmark'\''s median less the margin.]:N:' \
		'--no-verify[Send even what the checks refuse, and leave out those that compute. A failed validation scores zero, and five ban the address.]' \
		'--again[Send although this commit was submitted before.]' \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_run()
{
	_arguments \
		'--improve=[What a weighted score must be above the last one; -100%\: commit every new HEAD.]:PERCENT:' \
		'--interval=[From the start of one round of work to that of the next.]:SECONDS:' \
		'--notify=[Run CMD in a shell for each event.]:CMD:' \
		'--log=[Lines for programs or for people.]:FORMAT:(json text)' \
		'--seq=[Tokens to compete at.]:N:' \
		'--margin=[What the claim stays below the measured median.]:PERCENT:' \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for one step at the validator; what did not succeed is tried later.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_status()
{
	_arguments \
		'--watch[Keep showing it until interrupted.]' \
		'--interval=[With --watch\: pause between two looks at the validator, and how long one may take (5 at the least).]:SECONDS:' \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_round()
{
	_arguments \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_leaderboard()
{
	_arguments \
		'--top=[How many ranks to show.]:N:' \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_gpus()
{
	_arguments \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_doctor()
{
	_arguments \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest wait for one answer of the validator.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_localnet()
{
	_arguments \
		'--like=[2026-02\: answer as the validator deployed then, faults included. strict\: as it was meant.]:VERSION:' \
		'--port=[Port to listen on; 0\: any that is free.]:N:' \
		'--listen=[Address to listen on; 0.0.0.0\: all.]:ADDRESS:' \
		'--db=[Where the state is kept. Left out\: localnet.db in the workspace, else in this directory.]:FILE:_files' \
		'--block-time=[How long a block takes.]:SECONDS:' \
		'--blocks-until-reveal=[Blocks between a commitment and its reveal.]:N:' \
		'--rate-limit=[Signed requests that a hotkey may make in 60 seconds; 0\: no limit. Left out\: none with 2026-02, 10 with strict.]:N:' \
		'--connections=[Connections at a time; beyond, the one idle for longest gives way.]:N:' \
		'--request-timeout=[How long a client may take to send a request, or stay idle.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_validate()
{
	_arguments \
		'--once[Judge what waits, then end.]' \
		'--interval=[Time between two looks.]:SECONDS:' \
		'--finalize[End the round\: at once with --once, otherwise whenever its time is up.]' \
		'--budget=[Time for each submission'\''s benchmark.]:SECONDS:' \
		'--local-forks[Clone from any address, file\:// and paths included, for any API.]' \
		'--device=[Where to compute\: auto, cpu, cuda or cuda\:N.]:NAME:' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_export-state()
{
	_arguments \
		'--force[Replace FILE if it exists.]' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_import-state()
{
	_arguments \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_recover()
{
	_arguments \
		'--wallet=[Wallet that holds the hotkey.]:NAME:' \
		'--hotkey=[Hotkey in that wallet.]:NAME:' \
		'--path=[Where the wallets are.]:DIR:_files -/' \
		'--api=[Base URL of the validator API.]:URL:' \
		'--timeout=[Longest time for the whole exchange, retries included.]:SECONDS:' \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_generate()
{
	_arguments \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar_help()
{
	_arguments \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'*:file:_files'
}

_quasar()
{
	local line state
	_arguments -C \
		'--json[Print one JSON document on stdout instead of text.]' \
		'--workspace=[The workspace; else $QUASAR_WORKSPACE, else this directory or one above it, if it is your own.]:DIR:_files -/' \
		'--quiet[Leave out notices and progress.]' \
		'--verbose[Say more on stderr.]' \
		'--help[Explain the command.]' \
		'1:command:->command' '*::argument:->arguments'
	case $state in
	command) local -a names=(
		'wallet:make, restore and use the hotkey that signs for you'
		'init:make a workspace\: settings, state and the fork'
		'register:make the hotkey known to the validator'
		'verify:hold everything against the fork that a validator would'
		'bench:measure tokens/s of the fork, of quasar'\''s own layer, or of the operation'
		'score:what a speed is worth\: league, weighted score, score of a claim'
		'leagues:list the leagues with their multipliers, and the rewards'
		'push:commit the fork'\''s changes and push them to where validators clone'
		'commit:commit to the fork'\''s HEAD without showing it yet'
		'reveal:reveal a commitment whose block is reached'
		'submit:submit the fork'\''s HEAD in one step, visible to everyone at once'
		'run:mine unattended\: verify, bench, commit what is better, reveal, again'
		'status:where each submission stands\: step, blocks left, rank'
		'round:show the current round\: time left, submissions, the score to beat'
		'leaderboard:rank the submissions that the validator shows, and list the rewards'
		'gpus:list the GPUs of this machine, and what is known of others'
		'doctor:what this machine and workspace have, what is missing, and how to mend it'
		'localnet:serve the validator'\''s API on this machine, for trying things out'
		'validate:judge submissions\: clone, import check, benchmark, score'
		'export-state:write the journal of submissions, salts included, to an encrypted file'
		'import-state:take in the journal of submissions that export-state wrote'
		'recover:save what can be saved when the state store is damaged or gone'
		'generate:write man pages, completions or .env.example'
		'help:explain a command'
		)
		_describe command names ;;
	arguments) (( $+functions[_quasar_$line[1]] )) && _quasar_$line[1] ;;
	esac
}

_quasar "$@"
