#!/bin/sh
# Checks the manual pages and the completion that the build has made: manual.sh FOLDER SOURCE
set -eu
folder=$1 source=$2
pages="$folder/spillwayd.8 $folder/spillwayctl.1 $folder/spillwayd.json.5 $folder/spillway.3 $folder/spillway_pool.3 $folder/spillway-bench.1
    $folder/swcodec.1 $source/daemon/ctl/libspillway.3"
for page in $pages; do
    grep -q '^\.SH NAME' "$page"
    grep -q '^\.SH "SEE ALSO"' "$page"
    ! grep -n '`' "$page" || { echo "$page has marks of the help text"; exit 1; }
done
grep -oE '^[a-z][a-z_ ]* \*?spillway_[a-z_]+\(' -h "$source/ipc/spillway.h" "$source/ipc/spillway_pool.h" | grep -oE 'spillway_[a-z_]+\(' | tr -d '(' | while read -r call; do
    grep -q "$call" "$folder/spillway.3" "$folder/spillway_pool.3" || { echo "spillway(3) does not tell of $call"; exit 1; }
    grep -q "$call" "$source/daemon/ctl/libspillway.3" || { echo "libspillway(3) does not tell of $call"; exit 1; }
done
for program in spillway-bench swcodec; do # every option
    grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+' "$folder/$program.help" | grep -oE -- '--[a-z-]+' | sed 's/-/\\-/g' |
        while read -r option; do
            grep -qF -- "$option" "$folder/$program.1" || { echo "$program(1) does not tell of $option"; exit 1; }
        done
done
bash -n "$folder/completion"
if command -v mandoc >/dev/null; then
    # shellcheck disable=SC2086 # one page a word
    mandoc -Tlint -Werror $pages
elif command -v man >/dev/null && command -v groff >/dev/null; then
    for page in $pages; do
        complaints=$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
        [ -z "$complaints" ] || { echo "$page: $complaints"; exit 1; }
    done
else
    echo "skipped: neither mandoc nor man"
    exit 77
fi
