#compdef quasar
# zsh completion for quasar, which says itself what a word may become

_quasar()
{
	local line places=''
	local -a offers

	for line in ${(f)"$(command quasar __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)"}; do
		case $line in
		:*) places=$line ;;
		*$'\t'*) offers+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		*) offers+=("${line//:/\\:}") ;;
		esac
	done
	(( $#offers )) && _describe -t values quasar offers
	[[ $places ]] && compset -P '--[a-z-]##='
	case $places in
	:directories) _files -/ ;;
	:files) _files ;;
	esac
}

if [[ ${funcstack[1]} == _quasar ]]; then
	_quasar "$@"
else
	compdef _quasar quasar
fi
