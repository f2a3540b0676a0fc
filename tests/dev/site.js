// SPDX-License-Identifier: BSD-3-Clause
// The scripts of the page that tries a block: node site.js TRY PICITOOL TMP. Its blocks have the size of picitool's,
// and malformed files are refused. Leaves TMP/a.npy and TMP/two.safetensors for site_page.py.
"use strict";
const assert = require("assert");
const child = require("child_process");
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, picitool, tmp] = process.argv.slice(2);
for (const name of ["wasm.js", "arrays.js", "codec.js"])
    vm.runInThisContext(fs.readFileSync(path.join(folder, name), "utf8"), name);
const of = name => vm.runInThisContext(name);

function npy(descr, shape, bytes) {
    const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape.join(", ")},), }`;
    const header = Buffer.from(text.padEnd(117) + "\n");
    const length = Buffer.alloc(2);
    length.writeUInt16LE(header.length);
    return Buffer.concat([Buffer.from([0x93, ...Buffer.from("NUMPY"), 1, 0]), length, header, bytes]);
}

function safetensors(header, bytes) {
    const text = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length));
    return Buffer.concat([length, text, bytes]);
}

function someFloats(n, every) {
    const values = new Float32Array(n);
    for (let i = 0; i < n; i += every)
        values[i] = Math.sin(i + 1);
    values[n - 1] = -0;
    return Buffer.from(values.buffer);
}

const module_ = wasmModule(of("PICI_WASM"));
let compared = 0;
for (const [kind, dtype, bytes] of [["<f4", "f32", someFloats(70001, 17)], ["<f4", "f32", someFloats(5000, 1)],
    ["<i2", "i16", someFloats(9000, 90)], ["|u1", "u8", Buffer.alloc(4096)], ["<f8", "f64", Buffer.alloc(0)]]) {
    const count = bytes.length / of("PICI_WIDTHS")[dtype];
    const [tensor] = tensorsOf("a.npy", npy(kind, [count], bytes));
    assert.strictEqual(tensor.dtype, dtype);
    const found = measured(module_, tensor);
    fs.writeFileSync(path.join(tmp, "raw"), bytes);
    for (const [format, size] of Object.entries(found.blocks)) {
        const files = [path.join(tmp, "raw"), path.join(tmp, "block")];
        child.execFileSync(picitool, ["block", "encode", "--force", "-q", "-f", format, "-d", dtype, ...files]);
        const block = fs.readFileSync(path.join(tmp, "block"));
        assert.strictEqual(size, block.length, `${dtype} ${format}`);
        if (format === "hybrid")
            assert.deepStrictEqual(Buffer.from(found.first), block.subarray(0, 256));
        compared++;
    }
    const tiles = found.containers.reduce((sum, c) => sum + c.tiles, 0);
    assert.strictEqual(tiles, Math.ceil(count / 4096));
    const parts = found.containers.reduce((sum, c) => sum + c.positions + c.values, found.other);
    if (count > 0)
        assert.strictEqual(parts, found.blocks.hybrid);
    assert.strictEqual(tileCounts(tensor).length, tiles);
}
assert(compared >= 22, `${compared} blocks compared`);

const zeros = Buffer.alloc(24);
const two = {__metadata__: {}, a: {dtype: "F32", shape: [2, 2], data_offsets: [0, 16]},
    b: {dtype: "BF16", shape: [4], data_offsets: [16, 24]}};
assert.deepStrictEqual(tensorsOf("x", safetensors(two, zeros)).map(t => [t.name, t.dtype, t.count]),
    [["a", "f32", 4], ["b", "bf16", 4]]);
const one = (dtype, shape, offsets) => safetensors({a: {dtype, shape, data_offsets: offsets}}, zeros);
const bad = {
    "neither": Buffer.from("neither a file of tensors"),
    "cut": npy("<f4", [6], zeros).subarray(0, 40),
    "elements of >f4": npy(">f4", [6], zeros),
    "24 bytes": npy("<f4", [7], zeros),
    "no simple dtype": npy("<f4', 'x': '", ["'"], zeros),
    "elements of <c8": npy("<c8", [3], zeros),
    "header is cut": Buffer.concat([Buffer.from([255, 255, 255, 255, 255, 255, 255, 127]), Buffer.from("{}")]),
    "not JSON": safetensors("{]", zeros),
    "elements of I3": one("I3", [8], [0, 24]),
    "not in the file": one("F32", [8], [0, 32]),
    "not in the file ": one("F32", [8], [-8, 24]),
    "not in the file  ": one("F32", 8, [0, 24]),
    "not in the file   ": one("F32", [6], null),
    "not a count": one("F32", [1.5, 4], [0, 24]),
    "not a count ": one("F32", [-6, -1], [0, 24]),
    "8 bytes are not": one("F32", [6], [0, 8]),
    "is not a tensor": safetensors({a: null}, zeros),
    "is not a tensor ": safetensors({a: 1}, zeros),
};
for (const [words, bytes] of Object.entries(bad))
    assert.throws(() => tensorsOf("x", new Uint8Array(bytes)), e => e instanceof TypeError &&
        e.message.includes(words.trim()), words);

fs.writeFileSync(path.join(tmp, "a.npy"), npy("<f4", [70001], someFloats(70001, 17)));
fs.writeFileSync(path.join(tmp, "two.safetensors"), safetensors(two, zeros));
console.log(`${compared} blocks as picitool's, ${Object.keys(bad).length} files refused`);
