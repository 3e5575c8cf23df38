#!/usr/bin/env bash
# Checks .ci/includes on small trees: includes.sh SCRIPT
set -euo pipefail
script=$(realpath "$1")
command -v python3 >/dev/null || exit 77
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"

# begin RULE...: a tree with two rooms: high/top uses low/left, which uses low/right; low/parts.h declares for both.
begin() {
    rm -rf high low .ci
    mkdir high low .ci
    printf '%s\n' 'may low:' 'may high: low # and no others' "$@" >.ci/includes.rules
    cat >low/parts.h <<'END'
/* What sw_left() and sw_right() share. */
struct sw_parts;
int sw_left(struct sw_parts *parts);
int sw_right(struct sw_parts *parts,
             int (*sw_left)(void));
END
    cat >low/left.c <<'END'
#include "low/parts.h"
int sw_left(struct sw_parts *parts) {
    return sw_right(parts, 0);
}
END
    cat >low/right.c <<'END'
#include "low/parts.h"
/* Called by sw_left(). */
int sw_right(struct sw_parts *parts,
             int (*other)(void)) {
    return parts == 0 ? 0 : sw_say("sw_left()", other);
}
END
    printf '#include "low/parts.h"\nint main(void) {\n    return sw_left(0);\n}\n' >high/top.c
}

# passes / fails WHAT: the script's exit status, and what it says.
passes() {
    python3 "$script" . >said 2>&1 || { echo "$1: refused:"; cat said; exit 1; }
}
fails() {
    local what=$1
    shift
    ! python3 "$script" . >said 2>&1 || { echo "$what: accepted"; exit 1; }
    for text in "$@"; do
        grep -qF -- "$text" said || { echo "$what: says nothing of '$text':"; cat said; exit 1; }
    done
}

call_left() {
    printf 'int sw_again(void) {\n    return sw_left(0);\n}\n' >>low/right.c
}

begin
passes "a tree in order"

begin
call_left
fails "a cycle of calls behind a shared header" "cycle between files: low/left.c low/right.c" \
    "low/left.c needs low/right.c (sw_right)" "low/right.c needs low/left.c (sw_left)"

begin
printf 'static const struct sw_calls calls = {sw_left};\n' >>low/right.c
fails "a cycle by a table of functions" "cycle between files"

begin
printf '#include "low/b.h"\n' >low/a.h
printf '#include "low/a.h"\n' >low/b.h
fails "a cycle of headers" "low/a.h low/b.h"

begin
printf 'int sw_low(void);\nstatic inline int sw_inline(void) {\n    return sw_low();\n}\n' >low/own.h
printf '#include "low/own.h"\nint sw_low(void) {\n    return sw_left(0);\n}\n' >low/own.c
passes "a header whose inline function calls the source of its name"
printf 'static int sw_from_left(void) {\n    return sw_low();\n}\n' >>low/left.c
fails "a cycle through such a source" "low/left.c low/own.c"

begin "cycle low/left.c low/right.c"
call_left
passes "a cycle that is listed"
printf 'int sw_third(void) {\n    return sw_left(0);\n}\n' >low/third.c
printf 'int sw_to_third(void) {\n    return sw_third();\n}\n' >>low/left.c
fails "a listed cycle that grows" "cycle between files: low/left.c low/right.c low/third.c"

begin "cycle low/left.c low/right.c"
fails "a listed cycle that is gone" "low/left.c is in no cycle any more"

begin "cycle low/left.c low/right.c high/top.c"
call_left
fails "a listed cycle that one has left" "high/top.c is in no cycle any more"

begin
printf '#include "high/top.h"\n' >>low/left.c
touch high/top.h
fails "an include that goes up" "low/left.c must not need high/top.h (#include): low may include only low"

begin
printf 'int sw_up(void) {\n    return 0;\n}\n' >>high/top.c
printf 'int sw_down(void) {\n    return sw_up();\n}\n' >>low/left.c
fails "a call that goes up" "low/left.c must not need high/top.c (sw_up)"

begin "up low/left.c high/top.h"
printf '#include "high/top.h"\n' >>low/left.c
touch high/top.h
passes "one that is listed"

begin "up low/left.c high/top.h"
fails "a listed way up that is gone" "up low/left.c high/top.h\` is no longer needed"

begin "may high/inner:"
mkdir high/inner
printf '#include "low/parts.h"\n' >high/inner/inner.c
fails "an inner room, by its own rule" "high/inner/inner.c must not need low/parts.h"

begin "allow low high"
fails "rules that cannot be read" "allow low high"
