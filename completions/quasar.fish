# fish completion for quasar, which says itself what a word may become

function __quasar_complete
    set -l word (commandline -ct)
    set -l before (string match -r -- '^--[a-z-]+=' $word)
    for line in (command quasar __complete (commandline -opc)[2..] "$word" 2>/dev/null)
        switch $line
            case :directories
                string replace -r -- '^' "$before" (__fish_complete_directories (string replace -- "$before" '' $word))
            case :files
                string replace -r -- '^' "$before" (__fish_complete_path (string replace -- "$before" '' $word))
            case '*'
                echo $line
        end
    end
end
complete -c quasar -f -a '(__quasar_complete)'
