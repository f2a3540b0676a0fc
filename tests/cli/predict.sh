#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool predict: tables, JSON, pictures, a page; what is refused; the predictions' shape.
. tests/cli/common

expect 0 table "$tool" predict -m gige-200 --collective all_reduce --ranks 2..16 --bytes 64K..64M/4 --density 1
says "the machine" '^gige-200: ' "$out"
says "its source" 'source: .*bench/net' "$out"
says "a heading" '^all_reduce, f32, 1% nonzero$' "$out"
says "sizes" '^ +ranks +64K +256K +1M +4M +16M +64M$' "$out"
says "a row" '^ +16( +[0-9.]+[A-Za-z]){6}$' "$out"
[ "$(grep -Ec '^ +[0-9]+ .*[0-9][A-Za-z]$' "$out")" = 4 ] && pass || fail "rows: $(cat "$out")"

expect 0 "all-to-all" "$tool" predict -m gige-200 --collective all_to_all --ranks 2..16 --bytes 64K..4M/4 \
    --density 1,100 --per-node 2
says "all-to-all: a heading" '^all_to_all, f32, 1% nonzero$' "$out"
says "all-to-all: sparse blocks are faster" '^ +16( +[0-9.]+X){4}$' "$out"
expect 0 "all-to-all, JSON" "$tool" predict -m gige-200 --collective all_reduce,all_to_all --ranks 8 --bytes 1M --json
says "all-to-all: another library's" '"native exchange": [0-9]' "$out"
[ "$(grep -c '"exchange": ' "$out")" = 1 ] && pass || fail "the candidates of all-to-all: $(cat "$out")"

for machine in perlmutter perlmutter-flat frontier gige-100 gige-500 ethernet-1g ethernet-10g ethernet-100g \
    simulated; do
    expect 0 "$machine" "$tool" predict --machine $machine --ranks 8,12 --bytes 1M
    says "$machine: source" 'source: [A-Z0-9]' "$out"
done

expect 0 JSON "$tool" predict -m perlmutter --collective all_gather --ranks 64..2048 --bytes 16M..1G --density 100 \
    --json
cp "$out" p.json
if command -v python3 >/dev/null 2>&1; then
    python3 - >"$out" 2>&1 <<'END'
import json
p = json.load(open("p.json"))
assert p["machine"] == "perlmutter" and p["source"] and p["constants"]["ranks of a node"] == "4"
cells = {(c["ranks"], c["bytes"] >> 20): c for c in p["cells"]}
assert len(cells) == 6 * 7
for c in cells.values():
    assert c["seconds"] == min(c["candidates"].values()) and c["best"] in c["candidates"]
    assert abs(c["speedup"] - c["dense_seconds"] / c["seconds"]) < 1e-9 and c["speedup"] >= 1
for mib in (16, 64, 256, 1024):
    gains = [cells[r, mib]["speedup"] for r in (64, 128, 256, 512, 1024, 2048)]
    assert all(b >= a * 0.999 for a, b in zip(gains, gains[1:])), gains
assert cells[64, 1024]["speedup"] == 1 and cells[2048, 16]["speedup"] > 2
print("ok")
END
    says "predictions" '^ok$' "$out"
else
    skip "predictions: no python3"
fi

expect 0 page "$tool" predict -m gige-200 --ranks 2..64 --bytes 1M..64M/8 --density 1,100 -o page.html
says page '<h2>reduce_scatter</h2>' page.html
says "page: source" 'bench/net' page.html
[ "$(grep -c '<svg ' page.html)" = 15 ] && pass || fail "page: $(grep -c '<svg ' page.html) plots"
grep -Eq '<(script|img|link)|href=|src=' page.html && fail "page: refers to other files" || pass
if command -v python3 >/dev/null 2>&1; then
    for plot in bytes sparsity time; do
        expect 0 "$plot" "$tool" predict -m gige-200 --collective all_reduce --ranks 2..64 --density 1 --plot $plot \
            -o $plot.svg
        python3 -c 'import sys, xml.dom.minidom
texts = [t.firstChild.data for t in xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("text")]
assert "ranks" in texts and "64" in texts, texts' $plot.svg >"$out" 2>&1 && pass || fail "$plot: $(cat "$out")"
    done
    says "lines" 'stroke=' time.svg
else
    skip "pictures as XML: no python3"
fi
expect 0 PNG "$tool" predict -m gige-200 --collective all_reduce --density 1 --plot time -o time.png
[ "$(head -c 4 time.png | tail -c 3)" = PNG ] && pass || fail "PNG"

# The example of formats/tune.md: what was measured at 64 MiB among 8 ranks is predicted there.
sed -n '/^pici-tune 1/,/^end /p' "$root/formats/tune.md" >x.tune
expect 0 "a tune file" "$tool" predict --tune x.tune --collective all_reduce --ranks 8 --bytes 64M --density 1,100 \
    --json
says "a tune file: a point" '"nodes-recursive": ?0.168[,}]' "$out"
says "a tune file: another" '"ring, dense": ?4.61[,}]' "$out"
says "a tune file: the native collective" '"native collective": 4.47' "$out"
says "a tune file: made" '2026-11-22' "$out"
sed 's/4.61/4.60/' x.tune >bad.tune
expect 1 "a damaged tune file" "$tool" predict --tune bad.tune
says "a damaged tune file" 'bad.tune: ' "$err"
expect 1 "no tune file" "$tool" predict --tune none.tune
expect 2 "--machine --tune" "$tool" predict --tune x.tune -m frontier

expect 2 "no machine" "$tool" predict
says "no machine" 'one of perlmutter, perlmutter-flat, frontier' "$err"
expect 2 "another machine" "$tool" predict -m frontir
says "a hint" 'frontier\?' "$err"
for list in 0 2..1 x 1,,2 2.. 1..4/1 99999999 '' ','; do
    expect 2 "--ranks '$list'" "$tool" predict -m frontier --ranks "$list"
done
for list in -1 101 x 1,,2 nan ''; do
    expect 2 "--density '$list'" "$tool" predict -m frontier "--density=$list"
done
expect 2 "--bytes 0" "$tool" predict -m frontier --bytes 0
expect 2 "--collective" "$tool" predict -m frontier --collective allreduce
expect 2 "--per-node" "$tool" predict -m frontier --per-node 4,8
expect 2 "a picture of all" "$tool" predict -m frontier -o x.svg
expect 2 "a picture of several densities" "$tool" predict -m frontier --collective all_gather --density 1,2 -o x.svg
expect 2 "--plot" "$tool" predict -m frontier --plot pie -o x.svg
expect 2 "--plot of a page" "$tool" predict -m frontier --plot time -o x.html
expect 2 "--json -o" "$tool" predict -m frontier --json -o x.json
absent "nothing is written" x.svg
expect 2 "an operand" "$tool" predict -m frontier file
expect 2 "an existing file" "$tool" predict -m frontier -o page.html
clean predict

# --help lists the collectives that are accepted; without --collective, the first three
"$tool" --complete predict --collective '' | cut -f 1 >accepted
"$tool" predict --help | sed -n 's/^ *--collective LIST *//p' >help
[ "$(sed 's/ (.*//; s/, /\n/g' help)" = "$(cat accepted)" ] && pass || fail "--help: $(cat help); $(cat accepted)"
says "the default in --help" '\(default: the first three\)$' help
while read -r name; do
    expect 0 "--collective $name" "$tool" predict -m frontier --collective "$name" --ranks 8 --bytes 1M
done <accepted
expect 0 "collectives by default" "$tool" predict -m frontier --ranks 8 --bytes 1M
[ "$(sed -n 's/^\([a-z_]*\), f32, .*/\1/p' "$out")" = "$(head -n 3 accepted)" ] && pass ||
    fail "collectives by default: $(cat "$out")"

expect 0 completion "$tool" --complete predict --machine per
says completion '^perlmutter' "$out"
for machine in $("$tool" --complete predict --machine '' | cut -f 1); do
    says "the manual names $machine" "^\.Cm (.*, )?$machine( |$)" "$root/tools/picitool.1"
done
expect 0 "completion of a plot" "$tool" --complete predict --plot t
says "completion of a plot" '^time' "$out"
finish
