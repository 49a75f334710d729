# bash completion for quasar, made from its command table
_quasar()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
	local path=quasar words='' files='' i word
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case "$path $word" in
		"quasar wallet"|"quasar wallet new"|"quasar wallet import"|"quasar wallet list"|"quasar wallet show"|"quasar wallet sign"|"quasar wallet verify") path="$path $word" ;;
		"quasar init") path="$path $word" ;;
		"quasar register") path="$path $word" ;;
		"quasar verify") path="$path $word" ;;
		"quasar bench") path="$path $word" ;;
		"quasar tune") path="$path $word" ;;
		"quasar score") path="$path $word" ;;
		"quasar leagues") path="$path $word" ;;
		"quasar export") path="$path $word" ;;
		"quasar push") path="$path $word" ;;
		"quasar commit") path="$path $word" ;;
		"quasar reveal") path="$path $word" ;;
		"quasar submit") path="$path $word" ;;
		"quasar run") path="$path $word" ;;
		"quasar status") path="$path $word" ;;
		"quasar round") path="$path $word" ;;
		"quasar leaderboard") path="$path $word" ;;
		"quasar gpus") path="$path $word" ;;
		"quasar doctor") path="$path $word" ;;
		"quasar localnet") path="$path $word" ;;
		"quasar validate") path="$path $word" ;;
		"quasar export-state") path="$path $word" ;;
		"quasar import-state") path="$path $word" ;;
		"quasar recover") path="$path $word" ;;
		"quasar generate") path="$path $word" ;;
		"quasar help") path="$path $word" ;;
		esac
	done
	case $path in
	"quasar")
		words="wallet init register verify bench tune score leagues export push commit reveal submit run status round leaderboard gpus doctor localnet validate export-state import-state recover generate help --json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	"quasar wallet")
		words="new import list show sign verify --json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	"quasar wallet new")
		words="--wallet --hotkey --path --words --crypto --encrypt --force --json --workspace --quiet --verbose --help "
		case $previous in
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--words) words="12 15 18 21 24" ;;
		--crypto) words="sr25519 ed25519" ;;
		esac ;;
	"quasar wallet import")
		words="--wallet --hotkey --path --crypto --encrypt --force --json --workspace --quiet --verbose --help "
		case $previous in
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--crypto) words="sr25519 ed25519" ;;
		esac ;;
	"quasar wallet list")
		words="--path --json --workspace --quiet --verbose --help "
		case $previous in
		--path) words=""; files=1 ;;
		esac ;;
	"quasar wallet show")
		words="--wallet --hotkey --path --json --workspace --quiet --verbose --help "
		case $previous in
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		esac ;;
	"quasar wallet sign")
		words="--wallet --hotkey --path --message-hex --json --workspace --quiet --verbose --help "
		case $previous in
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--message-hex) words="" ;;
		esac ;;
	"quasar wallet verify")
		words="--address --message-hex --signature --crypto --json --workspace --quiet --verbose --help "
		case $previous in
		--address) words="" ;;
		--message-hex) words="" ;;
		--signature) words="" ;;
		--crypto) words="sr25519 ed25519" ;;
		esac ;;
	"quasar init")
		words="--fork-url --github --from --seq --api --wallet --hotkey --path --json --workspace --quiet --verbose --help "
		case $previous in
		--fork-url) words="" ;;
		--from) words=""; files=1 ;;
		--seq) words="" ;;
		--api) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		esac ;;
	"quasar register")
		words="--seq --model --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--seq) words="" ;;
		--model) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar verify")
		words="--seq --fork --python --full --target --budget --static --strict --claimed --semantics --native --op --weights --device --seed --json --workspace --quiet --verbose --help "
		case $previous in
		--seq) words="" ;;
		--fork) words="" ;;
		--python) words="" ;;
		--target) words="" ;;
		--budget) words="" ;;
		--claimed) words="" ;;
		--semantics) words="upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised" ;;
		--op) words="quasar linear" ;;
		--weights) words=""; files=1 ;;
		--device) words="" ;;
		--seed) words="" ;;
		esac ;;
	"quasar bench")
		words="--seq --target --fork --python --native --op --semantics --runs --budget --compare --csv --markdown --weights --device --seed --json --workspace --quiet --verbose --help "
		case $previous in
		--seq) words="" ;;
		--target) words="" ;;
		--fork) words="" ;;
		--python) words="" ;;
		--op) words="quasar linear" ;;
		--semantics) words="upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised" ;;
		--runs) words="" ;;
		--budget) words="" ;;
		--weights) words=""; files=1 ;;
		--device) words="" ;;
		--seed) words="" ;;
		esac ;;
	"quasar tune")
		words="--gpu --op --semantics --kernel --seq --target --head-dim --heads --dtype --budget --strategy --seed --devices --resume --explain --list --show --export --import --forget --apply --triton --write --fork --python --json --workspace --quiet --verbose --help "
		case $previous in
		--gpu) words="" ;;
		--op) words="quasar linear" ;;
		--semantics) words="upstream causal bidirectional elu+1 relu squared-relu identity normalised unnormalised" ;;
		--kernel) words="" ;;
		--seq) words="" ;;
		--target) words="" ;;
		--head-dim) words="" ;;
		--heads) words="" ;;
		--dtype) words="bf16 fp16 fp32" ;;
		--budget) words="" ;;
		--strategy) words="auto exhaustive halving local" ;;
		--seed) words="" ;;
		--devices) words="" ;;
		--show) words="" ;;
		--export) words=""; files=1 ;;
		--import) words=""; files=1 ;;
		--forget) words="" ;;
		--fork) words="" ;;
		--python) words="" ;;
		esac ;;
	"quasar score")
		words="--seq --tokens-per-sec --claimed --validator-gpu --json --workspace --quiet --verbose --help "
		case $previous in
		--seq) words="" ;;
		--tokens-per-sec) words="" ;;
		--claimed) words="" ;;
		--validator-gpu) words="" ;;
		esac ;;
	"quasar leagues")
		words="--seq --json --workspace --quiet --verbose --help "
		case $previous in
		--seq) words="" ;;
		esac ;;
	"quasar export")
		words="--op-only --dry-run --force --json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	"quasar push")
		words="--message --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--message) words="" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar commit")
		words="--seq --margin --python --claim --no-verify --again --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--seq) words="" ;;
		--margin) words="" ;;
		--python) words="" ;;
		--claim) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar reveal")
		words="--wait --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar submit")
		words="--seq --margin --python --claim --no-verify --again --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--seq) words="" ;;
		--margin) words="" ;;
		--python) words="" ;;
		--claim) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar run")
		words="--improve --interval --notify --log --seq --margin --python --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--improve) words="" ;;
		--interval) words="" ;;
		--notify) words="" ;;
		--log) words="json text" ;;
		--seq) words="" ;;
		--margin) words="" ;;
		--python) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar status")
		words="--watch --interval --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--interval) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar round")
		words="--api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar leaderboard")
		words="--top --validator-gpu --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--top) words="" ;;
		--validator-gpu) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar gpus")
		words="--json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	"quasar doctor")
		words="--wallet --hotkey --path --api --api-version --python --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--python) words="" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar localnet")
		words="--like --port --listen --db --block-time --blocks-until-reveal --rate-limit --cooldown --round-time --validator-hotkeys --api-keys --connections --request-timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--like) words="" ;;
		--port) words="" ;;
		--listen) words="" ;;
		--db) words=""; files=1 ;;
		--block-time) words="" ;;
		--blocks-until-reveal) words="" ;;
		--rate-limit) words="" ;;
		--cooldown) words="" ;;
		--round-time) words="" ;;
		--validator-hotkeys) words="" ;;
		--api-keys) words="" ;;
		--connections) words="" ;;
		--request-timeout) words="" ;;
		esac ;;
	"quasar validate")
		words="--once --interval --finalize --budget --device --python --no-sandbox --native --gpu-factor --assume-verified --local-forks --wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--interval) words="" ;;
		--budget) words="" ;;
		--device) words="" ;;
		--python) words="" ;;
		--gpu-factor) words="" ;;
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar export-state")
		words="--force --json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	"quasar import-state")
		words="--json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	"quasar recover")
		words="--wallet --hotkey --path --api --api-version --timeout --json --workspace --quiet --verbose --help "
		case $previous in
		--wallet) words="" ;;
		--hotkey) words="" ;;
		--path) words=""; files=1 ;;
		--api) words="" ;;
		--api-version) words="auto 2026-04 2026-02" ;;
		--timeout) words="" ;;
		esac ;;
	"quasar generate")
		words="--json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	"quasar help")
		words="--json --workspace --quiet --verbose --help "
		case $previous in
		esac ;;
	esac
	case $previous in -C|--workspace) words=''; files=1 ;; esac
	COMPREPLY=($(compgen -W "$words" -- "$current"))
	if [[ $files || ( ${#COMPREPLY[@]} -eq 0 && $current != -* ) ]]; then
		COMPREPLY+=($(compgen -f -- "$current"))
	fi
}
complete -o filenames -F _quasar quasar
