#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tools/dev/check-structs on small headers: a struct that could not grow is found, and nothing else is.
set -eu
build=${BUILD:-build}
command -v python3 >/dev/null 2>&1 || { echo "skip: no python3: tools/dev/check-structs not tested"; exit 77; }
mkdir -p "$build"
tree=$(mktemp -d "$build/structs.XXXXXX")
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/include/pici"
passed=0

expect() { # WHAT WORDS: of the header that standard input has, check-structs says exactly these words
    cat >"$tree/include/pici/x.h"
    said=$(tools/dev/check-structs "$tree") || true
    [ "$said" = "$2" ] || { printf 'FAIL %s:\n%s\ninstead of\n%s\n' "$1" "$said" "$2"; exit 1; }
    passed=$((passed + 1))
}

expect "structs that can grow" "check-structs: 4 structs, 2 lengths of arrays" <<'END'
#define PICI_KINDS_ROOM 8
#define PICI_RANK_MAX 32u
/* struct pici_comment { uint64_t x[PICI_KINDS]; }; */
struct pici_never;
struct pici_attr {
    const char *key;
};
struct pici_inner {
    size_t size; /* in bytes [n] */
    uint64_t a[PICI_KINDS_ROOM], b[PICI_KINDS_ROOM][PICI_KINDS_ROOM];
};
struct pici_outer {
    size_t size;
    const struct pici_inner *in;
    struct pici_attr attr;
    int (*call)(void *self, const int count[3], struct pici_inner (*)(int x[2]));
    struct pici_inner block;
};
struct pici_shape {
    size_t size;
    uint64_t shape[PICI_RANK_MAX];
};
int f(uint64_t count[2]);
END

expect "an array of today's number" "x.h: struct pici_s: 'uint64_t b[PICI_KINDS]': [PICI_KINDS] is not a PICI_..._ROOM
x.h: struct pici_s: 'uint64_t c[4]': [4] is not a PICI_..._ROOM
x.h: struct pici_s: 'double d[PICI_KINDS_ROOM][2]': [2] is not a PICI_..._ROOM
x.h: struct pici_s: 'int e[PICI_LAST_ROOM]': [PICI_LAST_ROOM] is not a PICI_..._ROOM" <<'END'
#define PICI_KINDS_ROOM 8
#define PICI_LAST_ROOM (PICI_KINDS + 1)
enum pici_kind { PICI_A, PICI_KINDS };
struct pici_s {
    size_t size;
    uint64_t a[PICI_KINDS_ROOM];
    uint64_t b[PICI_KINDS];
    uint64_t c[4];
    struct {
        double d[PICI_KINDS_ROOM][2];
    } in;
    int e[PICI_LAST_ROOM];
};
END

expect "no size" "x.h: struct pici_s: does not begin with its size" <<'END'
struct pici_s {
    int x;
    size_t size;
};
END

expect "a struct that may grow, before others" \
    "x.h: struct pici_s: 'struct pici_in in' may grow, and is not the last member" <<'END'
struct pici_in {
    size_t size;
};
struct pici_s {
    size_t size;
    struct pici_in in;
    int x;
};
END

expect "padding at the end" "x.h: struct pici_s: 4 bytes of padding at the end" <<'END'
struct pici_s {
    size_t size;
    int a;
};
struct pici_t {
    size_t size;
    union {
        int a, b;
    };
    unsigned c;
};
struct pici_reader_opts { /* as it was released */
    size_t size;
    int threads;
};
END

expect "a member in what was padding" "x.h: struct pici_opts: 'pack' begins in what was padding in a release" <<'END'
struct pici_opts {
    size_t size;
    int threads, checksum, zeros, pack;
};
END

expect "what was padding" "check-structs: 1 structs, 1 lengths of arrays" <<'END'
struct pici_opts {
    size_t size;
    int threads, checksum, zeros, unused, pack, reserved;
};
END

expect "nothing" "no structs found" <<'END'
int f(void);
END

# Of the public headers each length of an array is found, if it is made a number.
mkdir "$tree/planted"
for room in PICI_CONTAINERS_ROOM PICI_FORMATS_ROOM PICI_RANK_MAX; do
    rm -rf "$tree/planted/include" && mkdir "$tree/planted/include" && cp -R include/pici "$tree/planted/include"
    sed -i "s/\[$room\]/[5]/" "$tree/planted"/include/pici/*.h
    ! tools/dev/check-structs "$tree/planted" >"$tree/log" || { echo "FAIL an array of $room is not found"; exit 1; }
    passed=$((passed + 1))
done
echo "$passed passed"
