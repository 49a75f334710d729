# bash completion for quasar, which says itself what a word may become

_quasar()
{
	local current=${COMP_WORDS[COMP_CWORD]} words=() word before i

	# bash splits "--device=cuda:0" at "=" and ":"
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $i -gt 1 && $word && ($word == [:=]* || ${COMP_WORDS[i - 1]} == *[:=]) ]]; then
			words[-1]+=$word
		else
			words+=("$word")
		fi
	done
	[[ $current != *[:=] ]] || current=''
	before=${words[-1]%"$current"}

	COMPREPLY=()
	while IFS=$'\t' read -r word _; do
		case $word in
		:directories) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current") ;;
		:files) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
		*)
			word=${word#"$before"}
			[[ $word != *[!A-Za-z0-9_.,:=/+-]* ]] || printf -v word %q "$word"
			COMPREPLY+=("$word")
			;;
		esac
	done < <(command quasar __complete "${words[@]}" 2>/dev/null)
}
complete -F _quasar quasar
