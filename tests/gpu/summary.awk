# SPDX-License-Identifier: BSD-3-Clause
# What a run on a GPU measured (tests/gpu/stages), as JSON or as tables.
#   awk -v kind=json|table -v work=FOLDER -v gpu=NAME -v seconds=N -f summary.awk
# FOLDER has rows (part, program, status, seconds, words, separated by tabs), and speeds and counters, a line of JSON
# each. Beside their targets are lines with "operation": those of bench_cuda and nccl_fork.

function get(name,    s) { # the value of a name in $0
    if (!match($0, "\"" name "\": \"?[^\",}]*"))
        return ""
    s = substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4)
    sub(/^"/, "", s)
    return s
}

function least(what, of) {
    target = target (target == "" ? "" : ", ") what
    if (of == "" || of + 0 < substr(what, 4) + 0)
        verdict = "missed"
}

function best(who) {
    if (!((key, who) in us) || us[key, who] > get("us") + 0)
        us[key, who] = get("us") + 0
}

# Ours, in order, and the best of each other.
function read_speeds(file) {
    while ((getline <file) > 0) {
        speeds[++n_speeds] = $0
        if (get("operation") == "" || get("us") == "")
            continue
        key = get("operation") "\t" get("dtype") "\t" get("bytes") "\t" get("sparsity") "\t" get("ranks")
        by = get("by")
        if (by ~ /^CUB/)
            best("CUB")
        else if (by ~ /^cuSPARSE/)
            best("cuSPARSE")
        else if (get("nccl_us") != "" || by ~ /^(pici|hybrid|coo|packed.*|small delta)$/) {
            keys[++n] = key
            line[n] = $0
        }
    }
}

function times_as_fast(who) {
    return ((key, who) in us) ? sprintf("%.2f", us[key, who] / ours) : ""
}

# Sets the columns of our line i, its target and whether that is met.
function judge(i,    op, zeros, whole) {
    $0 = line[i]
    key = keys[i]
    ours = get("us") + 0
    zeros = get("sparsity") + 0
    op = get("operation")
    floor = get("of_floor")
    nccl = get("times_nccl")
    ratio = get("wire_ratio")
    cub = times_as_fast("CUB")
    sparse = times_as_fast("cuSPARSE")
    target = ""
    verdict = "met"
    whole = get("bytes") == 1073741824 && (get("by") == "pici" || get("by") == "hybrid")
    if (whole && op == "compress" && zeros <= 0.999)
        least(zeros < 0.5 ? ">= 0.75 of the floor" : ">= 0.8 of the floor", floor)
    else if (whole && op == "decompress" && zeros <= 0.999)
        least(zeros < 0.5 ? ">= 0.75 of the floor" : ">= 0.85 of the floor", floor)
    else if (whole && op == "scatter-add" && zeros >= 0.5 && zeros <= 0.99)
        least(zeros > 0.9 ? ">= 0.6 of the floor" : ">= 0.7 of the floor", floor)
    if (get("by") == "pici" && cub != "")
        least(">= 1 x CUB", cub)
    if (get("by") == "pici" && sparse != "")
        least(">= 1 x cuSPARSE", sparse)
    if (nccl != "")
        least(">= 0.95 x NCCL", nccl)
    if (nccl != "" && get("ranks") == 2 && zeros >= 0.9)
        least(sprintf(">= %.2f x NCCL", 0.7 * ratio), nccl)
    if (target == "")
        verdict = ""
    counts[verdict]++
    operation = op (get("ranks") != "" ? ", " get("ranks") " ranks" : "")
}

function quoted(text) {
    gsub(/["\\]/, " ", text)
    return "\"" text "\""
}

# Lines of JSON, as the members of an array.
function members(name, lines, count, last,    i) {
    printf "  \"%s\": [\n", name
    for (i = 1; i <= count; i++)
        print "    " lines[i] (i < count ? "," : "")
    print "  ]" (last ? "" : ",")
}

function as_json(    i) {
    printf "{\n  \"gpu\": %s,\n  \"seconds\": %d,\n", quoted(gpu), seconds
    for (i = 1; i <= n_rows; i++) {
        split(rows[i], r, "\t")
        rows[i] = sprintf("{\"part\": \"%s\", \"program\": %s, \"status\": \"%s\", \"seconds\": %d, \"words\": %s}",
                          r[1], quoted(r[2]), r[3], r[4], quoted(r[5]))
    }
    members("programs", rows, n_rows)
    members("speeds", speeds, n_speeds)
    for (i = 1; i <= n; i++) {
        judge(i)
        if (target != "")
            targets[++n_targets] = sprintf("{\"operation\": \"%s\", \"by\": \"%s\", \"dtype\": \"%s\", \"mib\": %g, " \
                "\"zeros_percent\": %g, \"target\": \"%s\", \"verdict\": \"%s\"}", operation, get("by"), get("dtype"),
                get("bytes") / 1048576, 100 * get("sparsity"), target, verdict)
    }
    members("targets", targets, n_targets)
    members("counters", counters, n_counters, 1)
    print "}"
}

function as_tables(    i, states) {
    print "| part | program | | seconds | |\n|---|---|---|---|---|"
    for (i = 1; i <= n_rows; i++) {
        split(rows[i], r, "\t")
        states[r[3]]++
        gsub(/\|/, "/", r[5])
        printf "| %s | %s | %s | %s | %s |\n", r[1], r[2], r[3], r[4], r[5]
    }
    if (n)
        print "\n| operation | by | dtype | MiB | zeros | us | of the floor | x CUB | x cuSPARSE | x NCCL " \
            "| wire ratio | target | |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= n; i++) {
        judge(i)
        printf "| %s | %s | %s | %g | %g | %.1f | %s | %s | %s | %s | %s | %s | %s |\n", operation, get("by"),
            get("dtype"), get("bytes") / 1048576, 100 * get("sparsity"), ours, floor, cub, sparse, nccl, ratio, target,
            verdict
    }
    if (n)
        printf "\ntargets: %d met, %d missed\n", counts["met"], counts["missed"]
    printf "\n%d ok, %d failed or late, %d skipped, in %d s\n", states["ok"], states["FAIL"] + states["LATE"],
        states["skip"], seconds
}

BEGIN {
    while ((getline <(work "/rows")) > 0)
        rows[++n_rows] = $0
    while ((getline <(work "/counters")) > 0)
        counters[++n_counters] = $0
    read_speeds(work "/speeds")
    if (kind == "json")
        as_json()
    else
        as_tables()
}
